-- Purpose:   one queue with its labels and all options, in the order of queen.log.requests.QueueConfiguration,
--            after the number of the queue.  Returns: its row, or none.
CREATE OR REPLACE FUNCTION queen.get_configuration_v1(p_queue text)
RETURNS TABLE (
    queue_id bigint, queue text, namespace text, task text, priority int, lease_time int,
    retry_limit int, retry_delay int, delayed_processing int, window_buffer int, dead_letter_queue bool,
    dlq_after_max_retries bool, retention_enabled bool, retention_seconds int, completed_retention_seconds int,
    ttl int, max_wait_time_seconds int, max_size int, encryption_enabled bool,
    sql_push bool, colocate_with text
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.id, q.name, q.namespace, q.task, q.priority, q.lease_time,
        q.retry_limit, q.retry_delay, q.delayed_processing, q.window_buffer, q.dead_letter_queue,
        q.dlq_after_max_retries, q.retention_enabled, q.retention_seconds, q.completed_retention_seconds,
        q.ttl, q.max_wait_time_seconds, q.max_size, q.encryption_enabled, q.sql_push, q.colocate_with
    FROM queen.queues AS q WHERE q.name = p_queue;
END;
COMMENT ON FUNCTION queen.get_configuration_v1 IS 'One queue with its labels and all options.';
