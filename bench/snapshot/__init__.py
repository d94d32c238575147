"""Push, pop and ack beside a transaction, or a replication slot, that keeps PostgreSQL from removing old row versions."""
