-- The state of a message for each group: whether it has done it, until when a live lease covers it, and its
-- dead letter of that group: when it failed (null: there is none), with its error.
CREATE OR REPLACE FUNCTION queen.message_groups(p_part bigint, p_off bigint)
RETURNS TABLE (name text, done bool, lease_ends timestamptz, failed_at timestamptz, error text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.name, d.done,
        CASE WHEN NOT d.done AND c.lease IS NOT NULL AND c.ready_at > queen.clock() AND p_off <= c.upto
            THEN c.ready_at END,
        f.failed_at, f.error
    FROM queen.partition_consumers AS c
    JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
    CROSS JOIN LATERAL (SELECT p_off <= c.acked OR coalesce(c.ahead @> p_off, false) AS done) AS d
    LEFT JOIN LATERAL (
        SELECT l.failed_at, l.error FROM queen.dead_letter_queue AS l
        WHERE d.done AND l.part_id = p_part AND l.off = p_off AND l.grp_id = c.grp_id LIMIT 1
    ) AS f ON true
    WHERE c.part_id = p_part;
END;
COMMENT ON FUNCTION queen.message_groups IS 'Internal: the state of a message for each group.';

-- The state of messages: a dead letter of some group, under a live lease of some group, completed by every group (if
-- there is one), else pending. The same for queue mode alone. done and groups count named groups.
CREATE OR REPLACE FUNCTION queen.message_states(p_part bigint[], p_off bigint[])
RETURNS TABLE (
    part_id bigint, off bigint, status text, queue_mode text, done bigint, groups bigint, lease_ends timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        u.part_id, u.off,
        CASE
            WHEN EXISTS (SELECT 1 FROM queen.dead_letter_queue AS d WHERE d.part_id = u.part_id AND d.off = u.off)
                THEN 'dead_letter'
            WHEN count(s.lease_ends) > 0 THEN 'processing'
            WHEN bool_and(s.done) THEN 'completed'
            ELSE 'pending'
        END,
        coalesce(
            max(CASE WHEN s.done THEN 'completed' WHEN s.lease_ends IS NOT NULL THEN 'processing' ELSE 'pending' END)
                FILTER (WHERE NOT c.named), 'pending'),
        count(*) FILTER (WHERE s.done AND c.named), count(*) FILTER (WHERE c.named), max(s.lease_ends)
    FROM unnest(p_part, p_off) AS u (part_id, off)
    LEFT JOIN (
        -- Each cursor is read once, and of its array ahead, which may be large, only what is asked for.
        SELECT a.part_id, l.acked, l.ahead * a.offsets AS ahead, l.upto, g.name <> '__QUEUE_MODE__' AS named,
            CASE WHEN l.lease IS NOT NULL AND l.ready_at > queen.clock() THEN l.ready_at END AS lease_ends
        FROM (
            SELECT o.part_id, range_agg(int8range(o.off, o.off, '[]')) AS offsets
            FROM unnest(p_part, p_off) AS o (part_id, off) GROUP BY o.part_id
        ) AS a
        JOIN queen.partition_consumers AS l ON l.part_id = a.part_id
        JOIN queen.consumer_groups_metadata AS g ON g.id = l.grp_id
        OFFSET 0
    ) AS c ON c.part_id = u.part_id
    CROSS JOIN LATERAL (SELECT u.off <= c.acked OR coalesce(c.ahead @> u.off, false) AS done) AS d
    CROSS JOIN LATERAL (
        SELECT d.done, CASE WHEN NOT d.done AND u.off <= c.upto THEN c.lease_ends END AS lease_ends
    ) AS s
    GROUP BY u.part_id, u.off;
END $$;
COMMENT ON FUNCTION queen.message_states IS 'Internal: the state of messages over all groups.';
