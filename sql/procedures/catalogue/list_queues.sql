-- Purpose:   queues with their figures, newest first.
-- Arguments: p_namespace, p_task, p_queue: null matches any; p_limit, p_offset: a page (null: all)
-- Returns:   one row a queue; figures and computed_at are null until the statistics know it.
CREATE OR REPLACE FUNCTION queen.list_queues_v1(p_namespace text, p_task text, p_queue text, p_limit int, p_offset int)
RETURNS TABLE (
    queue_id bigint, name text, namespace text, task text, created_at timestamptz, groups bigint, partitions bigint,
    total bigint, pending bigint, processing bigint, completed bigint, failed bigint, dead_letter bigint,
    offset_lag bigint, oldest_at timestamptz, computed_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.id, q.name, q.namespace, q.task, q.created_at,
        (SELECT count(*) FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = q.id),
        t.partitions, t.total, t.pending, t.processing, t.completed, t.failed, t.dead_letter, t.offset_lag, t.oldest_at,
        t.computed_at
    FROM queen.queues AS q LEFT JOIN queen.queue_stats AS t ON t.queue_id = q.id
    WHERE (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
        AND (p_queue IS NULL OR q.name = p_queue)
    ORDER BY q.id DESC LIMIT p_limit OFFSET p_offset;
END;
COMMENT ON FUNCTION queen.list_queues_v1 IS 'Queues with their figures, newest first.';
