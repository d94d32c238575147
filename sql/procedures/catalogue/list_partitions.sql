-- Purpose:   a page of the partitions of a queue (null: of all queues) with figures of this moment.
-- Arguments: p_partition: only the one of that name (null: all); p_search: what the name holds (null: any)
--            p_group: undone and leased are those of this group; null: of the slowest group of each partition
--            p_order: name (queue by queue), total, pending, processing, dead_letter (most first) or newest (latest push
--            first); p_reverse: the other way round
-- Returns:   one row per partition. pending leaves out what is under a live lease. matches: how many match; null by
--            name without a search.
-- Reads:     by name: the page only, and with a search all names; else every partition that matches.
CREATE OR REPLACE FUNCTION queen.list_partitions_v1(
    p_queue text, p_partition text, p_search text, p_group text, p_order text, p_reverse bool, p_limit int, p_offset int
) RETURNS TABLE (
    part_id bigint, queue text, name text, created_at timestamptz, total bigint, pending bigint, processing bigint,
    completed bigint, failed bigint, dead_letter bigint, consumed bigint, oldest_at timestamptz, newest_at timestamptz,
    matches bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_paged CONSTANT bool := p_order = 'name';
    v_parts bigint[];
    v_matches bigint;
BEGIN
    SELECT array_agg(u.id), max(u.matches) INTO v_parts, v_matches
    FROM (
        SELECT p.id, CASE WHEN NOT v_paged OR p_search IS NOT NULL THEN count(*) OVER () END AS matches
        FROM queen.partitions AS p
        WHERE (p_queue IS NULL OR p.queue_id = (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue))
            AND (p_partition IS NULL OR p.name = p_partition)
            AND (p_search IS NULL OR strpos(lower(p.name), lower(p_search)) > 0)
        ORDER BY CASE WHEN NOT p_reverse THEN p.queue_id END, CASE WHEN NOT p_reverse THEN p.name END,
            CASE WHEN p_reverse THEN p.queue_id END DESC, CASE WHEN p_reverse THEN p.name END DESC
        LIMIT CASE WHEN v_paged THEN p_limit END OFFSET CASE WHEN v_paged THEN p_offset ELSE 0 END
    ) AS u;
    RETURN QUERY
    SELECT v.*, v_matches
    FROM (
        SELECT
            f.part_id, q.name AS queue, f.name, f.made_at, f.kept, coalesce(c.pending, f.kept) AS pending,
            coalesce(c.leased, 0) AS leased, f.kept - coalesce(c.undone, f.kept), coalesce(c.failed, 0),
            (SELECT count(*) FROM queen.dead_letter_queue AS d WHERE d.part_id = f.part_id) AS dead_letter,
            coalesce(c.consumed, 0), f.oldest_at, f.newest_at
        FROM queen.partition_figures(v_parts) AS f
        JOIN queen.queues AS q ON q.id = f.queue_id
        LEFT JOIN (
            SELECT n.part_id, max(n.undone - n.leased) AS pending, max(n.leased) AS leased, max(n.undone) AS undone,
                max(n.failed) AS failed, min(n.consumed) AS consumed
            FROM queen.cursor_figures(v_parts, NULL, queen.clock()) AS n
            WHERE p_group IS NULL
                OR n.grp_id IN (SELECT g.id FROM queen.consumer_groups_metadata AS g WHERE g.name = p_group)
            GROUP BY n.part_id
        ) AS c ON c.part_id = f.part_id
    ) AS v
    JOIN queen.partitions AS p ON p.id = v.part_id
    ORDER BY
        CASE WHEN p_reverse THEN 1 ELSE -1 END * CASE p_order
            WHEN 'total' THEN v.kept WHEN 'pending' THEN v.pending WHEN 'processing' THEN v.leased
            WHEN 'dead_letter' THEN v.dead_letter WHEN 'newest' THEN coalesce(extract(epoch FROM v.newest_at), 0)
        END,
        CASE WHEN NOT p_reverse THEN p.queue_id END, CASE WHEN NOT p_reverse THEN p.name END,
        CASE WHEN p_reverse THEN p.queue_id END DESC, CASE WHEN p_reverse THEN p.name END DESC
    LIMIT p_limit OFFSET CASE WHEN v_paged THEN 0 ELSE p_offset END;
END $$;
COMMENT ON FUNCTION queen.list_partitions_v1 IS 'A page of partitions with current counts.';
