"""PostgreSQL: the only place that knows asyncpg."""
