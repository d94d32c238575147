-- Purpose:   puts off the end of live leases.
-- Arguments: one element a request: p_lease, p_seconds from now
-- Returns:   one row a request: ord from 1, how many cursors the lease holds, and the earliest end (null: no live lease).
-- Locks:     cursors in (part_id, grp_id) order.  Writes: partition_consumers.
CREATE OR REPLACE FUNCTION queen.renew_lease_v1(p_lease uuid[], p_seconds int[])
RETURNS TABLE (ord int, renewed int, expires_at timestamptz)
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
BEGIN
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.lease = ANY(p_lease) ORDER BY c.part_id + 0, c.grp_id FOR UPDATE;
    -- Now, not before: while it waited the lease may have ended and one of its partitions been given away. The others are not
    -- renewed then, for who asks takes a renewal for one of all that the lease still held.
    v_now := queen.clock();
    UPDATE queen.partition_consumers AS c
    SET ready_at = greatest(c.ready_at, v_now + make_interval(secs => u.seconds)), ver = c.ver + 1
    FROM (
        SELECT r.lease, max(r.seconds) AS seconds FROM unnest(p_lease, p_seconds) AS r (lease, seconds) GROUP BY r.lease
    ) AS u
    WHERE c.lease = ANY(ARRAY[u.lease]) AND c.ready_at > v_now;
    RETURN QUERY
    SELECT u.ord::int, count(c.part_id)::int, min(c.ready_at)
    FROM unnest(p_lease) WITH ORDINALITY AS u (lease, ord)
    LEFT JOIN queen.partition_consumers AS c ON c.lease = ANY(ARRAY[u.lease]) AND c.ready_at > v_now
    GROUP BY u.ord ORDER BY u.ord;
END $$;
COMMENT ON FUNCTION queen.renew_lease_v1 IS 'Puts off the end of live leases.';
