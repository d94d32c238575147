"""Push, pop and ack beside a transaction, or a replication slot, that keeps old row versions."""
