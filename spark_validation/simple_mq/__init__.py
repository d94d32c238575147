"""simple-mq: its journals and its tables in PostgreSQL, as audits look at them."""
