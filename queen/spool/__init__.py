"""The spool: files on the local disk that hold pushes while PostgreSQL is unavailable. See ``docs/spool.md``."""
