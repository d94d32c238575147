-- Purpose:   undoes leases whose messages never reached a consumer, because it had disconnected. It also undoes leases
--            that have ended, if the messages were not leased again.
-- Locks:     cursors in (part_id, grp_id) order.  Writes: partition_consumers.
-- Plans:     ADR 38 says why part_id + 0.
CREATE OR REPLACE FUNCTION queen.release_leases_v1(p_lease uuid[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := queen.write_clock();
BEGIN
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.lease = ANY(p_lease) ORDER BY c.part_id + 0, c.grp_id FOR UPDATE;
    UPDATE queen.partition_consumers AS c
    SET lease = NULL, ready_at = least(c.ready_at, v_now), attempts = greatest(c.attempts - 1, 0), seen = c.seen_before,
        ver = c.ver + 1
    WHERE c.lease = ANY(p_lease);
END $$;
COMMENT ON FUNCTION queen.release_leases_v1 IS 'Releases leases whose messages never reached a consumer.';
