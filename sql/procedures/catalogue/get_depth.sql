-- Purpose:   how much of a queue a group has still to do, by the statistics; without a group: the slowest one.
-- Returns:   one row, if the queue exists: undone and leased messages, and partitions with undone ones; and what pops would deliver
--            now (ready), in how many partitions.
CREATE OR REPLACE FUNCTION queen.get_depth_v1(p_queue text, p_group text)
RETURNS TABLE (
    pending bigint, processing bigint, partitions_pending bigint, ready bigint, partitions_ready bigint,
    computed_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        coalesce(
            d.total_lag, CASE WHEN p_group IS NULL THEN t.pending + t.processing ELSE t.total END, 0),
        coalesce(d.leased_messages, t.processing, 0),
        coalesce(d.partitions_with_lag, CASE WHEN d.grp_id IS NULL THEN t.partitions END, 0), r.ready, r.partitions,
        t.computed_at
    FROM queen.queues AS q
    CROSS JOIN LATERAL (SELECT queen.group_or_slowest(q.id, p_group) AS grp_id) AS g
    LEFT JOIN queen.queue_stats AS t ON t.queue_id = q.id
    LEFT JOIN queen.group_stats AS d ON d.grp_id = g.grp_id
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(n.ready), 0)::bigint AS ready, count(*) AS partitions
        FROM queen.ready_partitions(q.id, NULL, g.grp_id, NULL) AS n
    ) AS r
    WHERE q.name = p_queue;
END;
COMMENT ON FUNCTION queen.get_depth_v1 IS 'The backlog of a group on a queue.';
