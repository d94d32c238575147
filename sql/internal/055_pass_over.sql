-- Makes some offsets done for a cursor, because they were removed or deleted, or its group gave them up. A lease ends
-- when nothing undone is left under it. The caller has locked the cursor.
CREATE OR REPLACE FUNCTION queen.pass_over(p_part bigint, p_grp bigint, p_done int8multirange, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_cursor queen.partition_consumers;
    v_place record;
    v_ends bool;
BEGIN
    SELECT * INTO v_cursor FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    SELECT * INTO v_place FROM queen.advance(v_cursor.acked, coalesce(v_cursor.ahead, '{}') + p_done);
    v_ends := v_cursor.lease IS NOT NULL AND v_cursor.ready_at > p_now AND (
        v_place.acked >= v_cursor.upto
        OR coalesce(v_place.ahead @> int8range(v_place.acked + 1, v_cursor.upto, '[]'), false));
    UPDATE queen.partition_consumers AS c
    SET
        acked = v_place.acked, ahead = v_place.ahead,
        retries = queen.open_retries(c.retries, v_place.acked, v_place.ahead),
        attempts = CASE WHEN v_place.acked >= c.seen THEN 0 ELSE c.attempts END,
        lease = CASE WHEN v_ends THEN NULL ELSE c.lease END,
        ready_at = CASE WHEN v_ends THEN p_now ELSE c.ready_at END,
        ver = c.ver + 1
    WHERE c.part_id = p_part AND c.grp_id = p_grp AND c.ver = v_cursor.ver;
END $$;
COMMENT ON FUNCTION queen.pass_over IS 'Internal: moves a cursor over offsets that were removed or given up.';
