-- Purpose:   one queue with its labels and options.  Returns: its row, or none.
CREATE OR REPLACE FUNCTION queen.get_queue_v1(p_queue text)
RETURNS TABLE (
    queue_id bigint, name text, namespace text, task text, priority int, lease_time int, retry_limit int,
    retry_delay int, dead_letter_queue bool, dlq_after_max_retries bool, created_at timestamptz,
    ttl int, max_size int, paused bool
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.id, q.name, q.namespace, q.task, q.priority, q.lease_time, q.retry_limit, q.retry_delay,
        q.dead_letter_queue, q.dlq_after_max_retries, q.created_at, q.ttl, q.max_size, q.paused
    FROM queen.queues AS q WHERE q.name = p_queue;
END;
COMMENT ON FUNCTION queen.get_queue_v1 IS 'One queue with its labels and options.';
