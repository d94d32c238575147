"""The embedded PostgreSQL: its programs, data folder, settings, and its life as a child process."""
