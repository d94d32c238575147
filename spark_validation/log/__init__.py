"""The log in PostgreSQL, read in parallel under one snapshot."""
