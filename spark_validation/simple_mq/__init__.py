"""simple-mq: its journals and its tables in PostgreSQL, for audits."""
