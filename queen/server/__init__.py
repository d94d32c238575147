"""Running it: gunicorn's configuration and worker classes, the embedded PostgreSQL, the graceful stop."""
