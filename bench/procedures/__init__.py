"""The procedures of the hot path against one row a message, through asyncpg, in one run."""
