-- Purpose:   a page of the partitions of a queue (null: of all queues) with figures of this moment, oldest first.
-- Arguments: p_partition: only the one of that name (null: all)
--            p_group: undone and leased are those of this group; null: of the slowest group of each partition
-- Returns:   one row per partition. pending leaves out what is under a live lease.
CREATE OR REPLACE FUNCTION queen.list_partitions_v1(
    p_queue text, p_partition text, p_group text, p_limit int, p_offset int
) RETURNS TABLE (
    part_id bigint, queue text, name text, created_at timestamptz, total bigint, pending bigint, processing bigint,
    completed bigint, failed bigint, dead_letter bigint, consumed bigint, oldest_at timestamptz, newest_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_parts bigint[];
BEGIN
    SELECT array_agg(u.id) INTO v_parts
    FROM (
        SELECT p.id FROM queen.partitions AS p
        WHERE (p_queue IS NULL OR p.queue_id = (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue))
            AND (p_partition IS NULL OR p.name = p_partition)
        ORDER BY p.queue_id, p.name LIMIT p_limit OFFSET p_offset
    ) AS u;
    RETURN QUERY
    SELECT
        f.part_id, q.name, f.name, f.made_at, f.kept, coalesce(c.pending, f.kept), coalesce(c.leased, 0),
        f.kept - coalesce(c.undone, f.kept), coalesce(c.failed, 0),
        (SELECT count(*) FROM queen.dead_letter_queue AS d WHERE d.part_id = f.part_id),
        coalesce(c.consumed, 0), f.oldest_at, f.newest_at
    FROM queen.partition_figures(v_parts) AS f
    JOIN queen.queues AS q ON q.id = f.queue_id
    LEFT JOIN (
        SELECT n.part_id, max(n.undone - n.leased) AS pending, max(n.leased) AS leased, max(n.undone) AS undone,
            max(n.failed) AS failed, min(n.consumed) AS consumed
        FROM queen.cursor_figures(v_parts, NULL, queen.clock()) AS n
        WHERE p_group IS NULL OR n.grp_id IN (SELECT g.id FROM queen.consumer_groups_metadata AS g WHERE g.name = p_group)
        GROUP BY n.part_id
    ) AS c ON c.part_id = f.part_id
    ORDER BY f.queue_id, f.name;
END $$;
COMMENT ON FUNCTION queen.list_partitions_v1 IS 'A page of partitions with current counts.';
