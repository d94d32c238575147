-- Counts the messages that a call of retention or eviction has removed, for queen.retention_metrics.
CREATE OR REPLACE FUNCTION queen.count_removed(p_queue text, p_old bigint, p_completed bigint, p_evicted bigint)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF p_old + p_completed + p_evicted > 0 THEN
        INSERT INTO queen.retention_metrics AS m (
            bucket, queue, retention_messages, completed_retention_messages, eviction_messages, events
        )
        VALUES (date_trunc('minute', queen.clock()), p_queue, p_old, p_completed, p_evicted, 1)
        ON CONFLICT (bucket, queue) DO UPDATE
        SET
            retention_messages = m.retention_messages + excluded.retention_messages,
            completed_retention_messages = m.completed_retention_messages + excluded.completed_retention_messages,
            eviction_messages = m.eviction_messages + excluded.eviction_messages,
            events = m.events + 1;
    END IF;
END $$;
COMMENT ON FUNCTION queen.count_removed IS
    'Internal: counts the messages that retention or eviction removed from a queue.';
