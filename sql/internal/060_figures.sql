-- Figures of partitions and cursors, for pages of a listing and for the statistics of whole queues.

CREATE OR REPLACE FUNCTION queen.range_size(p_ranges int8multirange) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (SELECT coalesce(sum(upper(r) - lower(r)), 0)::bigint FROM unnest(p_ranges) AS r);
COMMENT ON FUNCTION queen.range_size IS
    'Internal: the number of offsets in ranges. Check first that there are any: the call costs more than the rest '
    'of a row.';

-- One row per partition: the kept offsets first_off to next_off - 1, and how many of them still have their message.
CREATE OR REPLACE FUNCTION queen.partition_figures(p_part bigint[])
RETURNS TABLE (
    part_id bigint, queue_id bigint, name text, made_at timestamptz, first_off bigint, next_off bigint, kept bigint,
    oldest_at timestamptz, newest_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        p.id, p.queue_id, p.name, p.created_at, coalesce(s.first_off, h.next_off), h.next_off,
        h.next_off - coalesce(s.first_off, h.next_off) - CASE
            WHEN d.offsets IS NULL THEN 0
            ELSE queen.range_size(d.offsets * int8multirange(int8range(s.first_off, NULL)))
        END,
        s.created_at, CASE WHEN s.first_off IS NOT NULL THEN h.last_at END
    FROM queen.partitions AS p
    JOIN queen.log_ends AS h ON h.part_id = p.id
    LEFT JOIN queen.deleted_messages AS d ON d.part_id = p.id
    LEFT JOIN LATERAL (
        SELECT l.last_off - l.n + 1 AS first_off, l.created_at
        FROM queen.segments AS l WHERE l.part_id = p.id AND l.n > 0 ORDER BY l.last_off LIMIT 1
    ) AS s ON true
    WHERE p.id = any(p_part);
END;
COMMENT ON FUNCTION queen.partition_figures IS 'Internal: message counts of partitions.';

-- One row per cursor: its undone messages, those of them under a live lease (leased), those that failed before, those
-- done (consumed), and since when the oldest undone message waits. p_grp null: all groups.
CREATE OR REPLACE FUNCTION queen.cursor_figures(p_part bigint[], p_grp bigint, p_now timestamptz)
RETURNS TABLE (
    part_id bigint, grp_id bigint, undone bigint, leased bigint, failed bigint, consumed bigint, lease uuid,
    lease_ends timestamptz, untouched bool, oldest_at timestamptz, consumed_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        c.part_id, c.grp_id, u.undone, u.leased,
        CASE WHEN c.retries IS NULL THEN 0 ELSE (SELECT count(*) FROM jsonb_object_keys(c.retries)) END,
        c.acked + 1 + u.ahead,
        CASE WHEN u.live THEN c.lease END, CASE WHEN u.live THEN c.ready_at END,
        c.seen <= c.acked, o.created_at, b.created_at
    FROM queen.partition_consumers AS c
    JOIN queen.log_ends AS h ON h.part_id = c.part_id
    -- Most cursors have nothing to do, and cost one look at the log end.
    LEFT JOIN LATERAL (
        SELECT l.last_off - l.n + 1 AS first_off FROM queen.segments AS l
        WHERE l.part_id = c.part_id AND l.n > 0 AND c.acked < h.next_off - 1 ORDER BY l.last_off LIMIT 1
    ) AS f ON true
    CROSS JOIN LATERAL (
        SELECT
            h.next_off - greatest(c.acked + 1, coalesce(f.first_off, h.next_off)) - a.ahead AS undone,
            CASE
                WHEN c.lease IS NULL OR c.ready_at <= p_now THEN 0
                WHEN c.ahead IS NULL THEN greatest(c.upto - c.acked, 0)
                ELSE greatest(
                    c.upto - c.acked - queen.range_size(c.ahead * int8multirange(int8range(NULL, c.upto, '[]'))), 0)
            END AS leased,
            c.lease IS NOT NULL AND c.ready_at > p_now AS live,
            a.ahead
        FROM (SELECT CASE WHEN c.ahead IS NULL THEN 0 ELSE queen.range_size(c.ahead) END AS ahead) AS a
    ) AS u
    LEFT JOIN LATERAL (
        SELECT l.created_at FROM queen.segments AS l
        WHERE l.part_id = c.part_id AND l.last_off > c.acked AND l.n > 0 AND u.undone > 0 ORDER BY l.last_off LIMIT 1
    ) AS o ON true
    LEFT JOIN LATERAL (
        SELECT l.created_at FROM queen.segments AS l
        WHERE p_grp IS NOT NULL AND l.part_id = c.part_id AND l.last_off >= c.acked AND c.acked >= 0
        ORDER BY l.last_off LIMIT 1
    ) AS b ON true
    WHERE c.part_id = any(p_part) AND (p_grp IS NULL OR c.grp_id = p_grp);
END;
COMMENT ON FUNCTION queen.cursor_figures IS 'Internal: positions and lag of cursors.';
