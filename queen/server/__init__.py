"""Runs the server: gunicorn's configuration and worker classes, the embedded PostgreSQL, the graceful shutdown."""
