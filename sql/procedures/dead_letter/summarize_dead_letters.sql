-- Purpose:   of the newest 1000 dead letters, of one queue if it is named: how many partitions they are of, and their
--            five commonest error texts (their first 1000 characters) with how many have them.
CREATE OR REPLACE FUNCTION queen.summarize_dead_letters_v1(
    p_queue text, OUT partitions bigint, OUT error text[], OUT number bigint[]
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH newest AS MATERIALIZED (
        SELECT d.part_id, left(d.error, 1000) AS error
        FROM queen.find_dead_letters(p_queue, NULL, NULL, NULL, NULL, NULL, 1000, 1000, 0) AS f
        JOIN queen.dead_letter_queue AS d ON d.id = f.id
    ), common AS (
        SELECT n.error, count(*) AS number FROM newest AS n GROUP BY n.error ORDER BY count(*) DESC, n.error LIMIT 5
    )
    SELECT
        (SELECT count(DISTINCT n.part_id) FROM newest AS n),
        (SELECT array_agg(c.error ORDER BY c.number DESC, c.error) FROM common AS c),
        (SELECT array_agg(c.number ORDER BY c.number DESC, c.error) FROM common AS c);
END;
COMMENT ON FUNCTION queen.summarize_dead_letters_v1 IS
    'Partitions and most frequent errors of the newest dead letters.';

-- Purpose:   the dead letters that match, by error text (its first 1000 characters), commonest first.
-- Arguments: as queen.list_dead_letters_v1; p_slots: spans of equal length from the first failure to now
-- Returns:   one row per error. counts: how many failed in each span; begun_at, ends_at: of all spans.
CREATE OR REPLACE FUNCTION queen.group_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz, p_scan int, p_slots int,
    p_limit int
) RETURNS TABLE (
    error text, number bigint, first_failed_at timestamptz, last_failed_at timestamptz, counts bigint[],
    begun_at timestamptz, ends_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now CONSTANT timestamptz := queen.clock();
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT left(d.error, 1000) AS error, d.failed_at
        FROM queen.find_dead_letters(p_queue, p_group, p_partition, NULL, p_from, p_to, p_scan, p_scan, 0) AS f
        CROSS JOIN LATERAL (
            SELECT l.error, l.failed_at FROM queen.dead_letter_queue AS l WHERE l.id = f.id
        ) AS d
    ), span AS (
        SELECT min(f.failed_at) AS begun, greatest(max(f.failed_at), v_now) + interval '1 second' AS ends FROM found AS f
    ), slot AS (
        SELECT f.error, f.failed_at, width_bucket(
            extract(epoch FROM f.failed_at), extract(epoch FROM s.begun), extract(epoch FROM s.ends), p_slots) AS n
        FROM found AS f CROSS JOIN span AS s
    )
    SELECT c.error, c.number, c.first_failed_at, c.last_failed_at,
        ARRAY(
            SELECT count(o.n) FROM generate_series(1, p_slots) AS g (n)
            LEFT JOIN slot AS o ON o.n = g.n AND o.error = c.error GROUP BY g.n ORDER BY g.n
        ),
        s.begun, s.ends
    FROM (
        SELECT o.error, count(*) AS number, min(o.failed_at) AS first_failed_at, max(o.failed_at) AS last_failed_at
        FROM slot AS o GROUP BY o.error ORDER BY count(*) DESC, o.error LIMIT p_limit
    ) AS c
    CROSS JOIN span AS s
    ORDER BY c.number DESC, c.error;
END $$;
COMMENT ON FUNCTION queen.group_dead_letters_v1 IS 'Dead letters by error, with their numbers over time.';
