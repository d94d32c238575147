-- The steps of queen.refresh_statistics_v1, which sets how their statements are planned.

-- The queues whose statistics a call computes, and where the next page begins: see p_rows_max and p_after there.
CREATE OR REPLACE FUNCTION queen.choose_queues(p_rows_max bigint, p_after bigint, OUT queues bigint[], OUT last bigint)
LANGUAGE plpgsql
AS $$
BEGIN
    SELECT array_agg(s.id), CASE WHEN p_after IS NOT NULL AND count(*) < min(s.candidates) THEN max(s.id) END
    INTO queues, last
    FROM (
        SELECT q.id, q.candidates,
            sum(w.weight) OVER (ORDER BY CASE WHEN p_after IS NULL THEN w.weight END, q.id) AS running,
            row_number() OVER (ORDER BY q.id) = 1 AND p_after IS NOT NULL AS is_first
        FROM (
            SELECT c.id, count(*) OVER () AS candidates
            FROM (
                -- A queue weighs at least 1.
                SELECT l.id FROM queen.queues AS l WHERE l.id > coalesce(p_after, 0)
                ORDER BY l.id LIMIT CASE WHEN p_after IS NOT NULL THEN p_rows_max + 1 END
            ) AS c
        ) AS q
        LEFT JOIN queen.queue_stats AS t ON t.queue_id = q.id
        CROSS JOIN LATERAL (
            SELECT 1 + coalesce(t.dead_letter, 0) / 100 + coalesce(t.partitions, 0) * (
                1 + (SELECT count(*) FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = q.id)) AS weight
        ) AS w
    ) AS s
    WHERE s.running <= p_rows_max OR s.is_first;
END $$;
COMMENT ON FUNCTION queen.choose_queues IS 'Internal: the queues whose statistics are computed next.';

-- Computes and stores the statistics of queues and of their groups; returns how many of each.
CREATE OR REPLACE FUNCTION queen.write_statistics(p_queue bigint[], p_now timestamptz, OUT queues int, OUT groups int)
LANGUAGE plpgsql
AS $$
DECLARE
    v_parts bigint[];
BEGIN
    SELECT array_agg(p.id) INTO v_parts FROM queen.partitions AS p WHERE p.queue_id = ANY(p_queue);

    WITH cursor_now AS MATERIALIZED (
        SELECT g.queue_id, c.part_id, c.grp_id, c.undone, c.leased, c.failed, c.consumed, c.lease IS NOT NULL AS live,
            c.untouched, c.oldest_at
        FROM queen.cursor_figures(v_parts, NULL, p_now) AS c
        JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
    ), queue_now AS (
        INSERT INTO queen.queue_stats AS t
        SELECT
            q.id, count(f.part_id), coalesce(sum(f.kept), 0), coalesce(sum(coalesce(c.pending, f.kept)), 0),
            coalesce(sum(c.leased), 0), coalesce(sum(f.kept - coalesce(c.undone, f.kept)), 0), coalesce(sum(c.failed), 0),
            (SELECT count(*) FROM queen.dead_letter_queue AS d WHERE d.queue_id = q.id),
            coalesce(max(coalesce(c.undone, f.kept)), 0),
            min(CASE WHEN c.part_id IS NULL THEN f.oldest_at ELSE c.oldest_at END), p_now
        FROM queen.queues AS q
        LEFT JOIN queen.partition_figures(v_parts) AS f ON f.queue_id = q.id
        LEFT JOIN (
            SELECT n.part_id, max(n.undone - n.leased) AS pending, max(n.leased) AS leased, max(n.undone) AS undone,
                max(n.failed) AS failed, min(n.oldest_at) AS oldest_at
            FROM cursor_now AS n GROUP BY n.part_id
        ) AS c ON c.part_id = f.part_id
        WHERE q.id = ANY(p_queue)
        GROUP BY q.id
        ORDER BY q.id
        ON CONFLICT (queue_id) DO UPDATE SET
            partitions = excluded.partitions, total = excluded.total, pending = excluded.pending,
            processing = excluded.processing, completed = excluded.completed, failed = excluded.failed,
            dead_letter = excluded.dead_letter, offset_lag = excluded.offset_lag, oldest_at = excluded.oldest_at,
            computed_at = excluded.computed_at
        -- Not over what was computed later by somebody else.
        WHERE t.computed_at < excluded.computed_at
        RETURNING 1
    ), group_now AS (
        INSERT INTO queen.group_stats AS t
        SELECT
            g.id, g.queue_id, count(n.part_id), count(*) FILTER (WHERE n.undone > 0), coalesce(sum(n.undone), 0),
            count(*) FILTER (WHERE n.live), coalesce(sum(n.leased), 0), coalesce(sum(n.consumed), 0),
            coalesce(bool_and(n.untouched) FILTER (WHERE n.undone > 0), false), min(n.oldest_at),
            coalesce((array_agg(n.part_id ORDER BY n.oldest_at, n.part_id) FILTER (WHERE n.oldest_at IS NOT NULL))[:1000], '{}'),
            p_now
        FROM queen.consumer_groups_metadata AS g
        LEFT JOIN cursor_now AS n ON n.grp_id = g.id
        WHERE g.queue_id = ANY(p_queue)
        GROUP BY g.id
        ORDER BY g.id
        ON CONFLICT (grp_id) DO UPDATE SET
            members = excluded.members, partitions_with_lag = excluded.partitions_with_lag, total_lag = excluded.total_lag,
            leases = excluded.leases, leased_messages = excluded.leased_messages, consumed = excluded.consumed,
            untouched = excluded.untouched, oldest_at = excluded.oldest_at, slowest = excluded.slowest,
            computed_at = excluded.computed_at
        -- Not over what was computed later by somebody else.
        WHERE t.computed_at < excluded.computed_at
        RETURNING t.grp_id, t.total_lag, t.oldest_at
    ), lag_now AS (
        INSERT INTO queen.group_metrics AS m
        SELECT n.grp_id, queen.bucket(p_now, 1), n.total_lag, coalesce(greatest(extract(epoch FROM p_now - n.oldest_at), 0), 0)
        FROM group_now AS n WHERE n.total_lag > 0 ORDER BY n.grp_id
        ON CONFLICT (grp_id, bucket) DO UPDATE SET
            lag = greatest(m.lag, excluded.lag), oldest_s = greatest(m.oldest_s, excluded.oldest_s)
        WHERE excluded.lag > m.lag OR excluded.oldest_s > m.oldest_s
    )
    SELECT (SELECT count(*) FROM queue_now), (SELECT count(*) FROM group_now) INTO queues, groups;
END $$;
COMMENT ON FUNCTION queen.write_statistics IS 'Internal: computes the statistics of queues and of their groups.';
