-- Purpose:   how much of a queue a group has still to do, by the statistics; without a group: the slowest one.
-- Returns:   one row, if the queue exists: undone and leased messages, and partitions with undone ones.
CREATE OR REPLACE FUNCTION queen.get_depth_v1(p_queue text, p_group text)
RETURNS TABLE (pending bigint, processing bigint, partitions_pending bigint, computed_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        coalesce(
            d.total_lag, CASE WHEN p_group IS NULL THEN t.pending + t.processing ELSE t.total END, 0),
        coalesce(d.leased_messages, t.processing, 0),
        coalesce(d.partitions_with_lag, CASE WHEN d.grp_id IS NULL THEN t.partitions END, 0), t.computed_at
    FROM queen.queues AS q
    LEFT JOIN queen.queue_stats AS t ON t.queue_id = q.id
    LEFT JOIN LATERAL (
        SELECT s.* FROM queen.group_stats AS s JOIN queen.consumer_groups_metadata AS g ON g.id = s.grp_id
        WHERE s.queue_id = q.id AND (p_group IS NULL OR g.name = p_group) ORDER BY s.total_lag DESC LIMIT 1
    ) AS d ON true
    WHERE q.name = p_queue;
END;
COMMENT ON FUNCTION queen.get_depth_v1 IS 'The backlog of a group on a queue.';
