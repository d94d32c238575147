"""The spool: files on the local disk that take pushes while PostgreSQL is away. ``docs/spool.md`` explains it."""
