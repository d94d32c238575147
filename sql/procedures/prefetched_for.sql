-- Purpose:   says for how long workers may still hold what they have prefetched. A request that changes what is
--            delivered waits so long before it answers, so that no message prefetched before the change is delivered
--            after the answer.
-- Arguments: p_queue, or p_part, a partition of the queue; p_group: of one group (null: of all)
-- Returns:   seconds; null: nothing is prefetched.
CREATE OR REPLACE FUNCTION queen.prefetched_for_v1(p_queue text, p_group text, p_part bigint) RETURNS float8
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := queen.clock();
    v_queue bigint := coalesce(
        (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue),
        (SELECT p.queue_id FROM queen.partitions AS p WHERE p.id = p_part));
BEGIN
    RETURN (
        SELECT extract(epoch FROM max(c.until) - v_now)::float8
        FROM queen.consumer_groups_metadata AS g
        CROSS JOIN LATERAL (
            SELECT l.prefetched_until AS until FROM queen.partition_consumers AS l
            WHERE l.grp_id = g.id AND l.prefetched_until > v_now ORDER BY l.prefetched_until DESC LIMIT 1
        ) AS c
        WHERE g.queue_id = v_queue AND (p_group IS NULL OR g.name = p_group));
END $$;
COMMENT ON FUNCTION queen.prefetched_for_v1 IS
    'The time for which workers may still hold prefetched messages of a queue.';

-- Purpose:   says for how long workers may still hold what they have prefetched at some cursors, so that an ack that names no lease is
--            not refused because of a lease that no consumer has. A busy worker releases late: a lease that was prefetched
--            within the last 0.25 s counts.
-- Arguments: p_part, p_grp: the cursors
-- Returns:   seconds; null: nothing is prefetched.
CREATE OR REPLACE FUNCTION queen.cursors_prefetched_for_v1(p_part bigint[], p_grp bigint[]) RETURNS float8
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN (
        SELECT greatest(extract(epoch FROM max(c.prefetched_until) - v_now)::float8, 0.05)
        FROM unnest(p_part, p_grp) AS u (part_id, grp_id)
        CROSS JOIN LATERAL (
            SELECT l.prefetched_until, l.lease, l.ready_at FROM queen.partition_consumers AS l
            WHERE l.part_id = u.part_id AND l.grp_id = u.grp_id ORDER BY l.ver DESC LIMIT 1
        ) AS c
        WHERE c.lease IS NOT NULL AND c.ready_at > v_now AND c.prefetched_until > v_now - interval '0.25 s'
        HAVING count(*) > 0);
END $$;
COMMENT ON FUNCTION queen.cursors_prefetched_for_v1 IS
    'The time for which workers may still hold prefetched messages of some cursors.';
