-- Purpose:   a page of the namespaces, or tasks, with the figures of their queues.
-- Arguments: p_tasks: whether tasks are wanted.  Returns: one row per label, in the order of the alphabet.
CREATE OR REPLACE FUNCTION queen.count_labels_v1(p_tasks bool, p_limit int, p_offset int)
RETURNS TABLE (label text, queues bigint, partitions bigint, total bigint, pending bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT l.label, count(*), coalesce(sum(t.partitions), 0)::bigint, coalesce(sum(t.total), 0)::bigint,
        coalesce(sum(t.pending), 0)::bigint
    FROM queen.queues AS q
    CROSS JOIN LATERAL (SELECT CASE WHEN p_tasks THEN q.task ELSE q.namespace END COLLATE "C" AS label) AS l
    LEFT JOIN queen.queue_stats AS t ON t.queue_id = q.id
    WHERE l.label <> '' GROUP BY l.label ORDER BY l.label LIMIT p_limit OFFSET p_offset;
END;
COMMENT ON FUNCTION queen.count_labels_v1 IS 'Namespaces or tasks with the statistics of their queues.';
