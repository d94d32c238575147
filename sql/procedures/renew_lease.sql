-- Purpose:   extends live leases.
-- Arguments: one element per request: p_lease, p_seconds from now
-- Returns:   one row per request: ord from 1, how many cursors the lease holds, and the earliest end (null: no live
--            lease).
-- Locks:     cursors in (part_id, grp_id) order.  Writes: partition_consumers.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]), part_id + 0.
CREATE OR REPLACE FUNCTION queen.renew_lease_v1(p_lease uuid[], p_seconds int[])
RETURNS TABLE (ord int, renewed int, expires_at timestamptz)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_part bigint[];          -- the cursors under these leases
    v_grp bigint[];
    v_ver bigint[];
    v_lease uuid[];
    v_seconds int[];
    v_end timestamptz[];
BEGIN
    SELECT array_agg(l.part_id), array_agg(l.grp_id), array_agg(l.ver), array_agg(l.lease)
    INTO v_part, v_grp, v_ver, v_lease
    FROM (
        SELECT c.part_id, c.grp_id, c.ver, c.lease FROM queen.partition_consumers AS c
        WHERE c.lease = ANY(p_lease) ORDER BY c.part_id + 0, c.grp_id FOR UPDATE
    ) AS l;
    -- Not joined below: with a table beside them planners look through all of one array for each element of the other.
    SELECT array_agg(u.seconds ORDER BY k.ord) INTO v_seconds
    FROM unnest(v_lease) WITH ORDINALITY AS k (lease, ord)
    LEFT JOIN (
        SELECT r.lease, max(r.seconds) AS seconds FROM unnest(p_lease, p_seconds) AS r (lease, seconds) GROUP BY r.lease
    ) AS u ON u.lease = k.lease;
    -- Now, not before: while the call waited, the lease may have ended and one of its partitions been leased to another
    -- consumer. Then the others are not renewed, because the client takes a renewal to be one of all.
    v_now := queen.write_clock();
    WITH renewed AS (
        UPDATE queen.partition_consumers AS c
        SET ready_at = greatest(c.ready_at, v_now + make_interval(secs => u.seconds)), ver = c.ver + 1
        FROM unnest(v_part, v_grp, v_ver, v_seconds) AS u (part_id, grp_id, ver, seconds)
        WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver
            AND c.ready_at + interval '0' > v_now
        RETURNING c.lease, c.ready_at
    )
    SELECT array_agg(r.lease), array_agg(r.ready_at) INTO v_lease, v_end FROM renewed AS r;
    -- Not joined above: planners expect one row of an update, and would read all rows for each request.
    RETURN QUERY
    SELECT u.ord::int, count(r.lease)::int, min(r.ends)
    FROM unnest(p_lease) WITH ORDINALITY AS u (lease, ord)
    LEFT JOIN unnest(v_lease, v_end) AS r (lease, ends) ON r.lease = u.lease
    GROUP BY u.ord ORDER BY u.ord;
END $$;
COMMENT ON FUNCTION queen.renew_lease_v1 IS 'Extends live leases.';
