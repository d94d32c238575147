-- Ends what a cursor still had to do with some offsets, because they were removed or deleted, or its group gave them up. A lease
-- ends when nothing undone is left under it. The caller holds the cursor.
CREATE OR REPLACE FUNCTION queen.pass_over(p_part bigint, p_grp bigint, p_done int8multirange, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    UPDATE queen.partition_consumers AS c
    SET
        acked = a.acked, ahead = a.ahead,
        retries = queen.open_retries(l.retries, a.acked, a.ahead),
        attempts = CASE WHEN a.acked >= l.seen THEN 0 ELSE l.attempts END,
        lease = CASE WHEN e.ends THEN NULL ELSE l.lease END,
        ready_at = CASE WHEN e.ends THEN p_now ELSE l.ready_at END,
        ver = c.ver + 1
    FROM queen.partition_consumers AS l
    CROSS JOIN LATERAL queen.advance(l.acked, coalesce(l.ahead, '{}') + p_done) AS a
    CROSS JOIN LATERAL (
        SELECT l.lease IS NOT NULL AND l.ready_at > p_now AND (
            a.acked >= l.upto OR coalesce(a.ahead @> int8range(a.acked + 1, l.upto, '[]'), false)) AS ends
    ) AS e
    WHERE l.part_id = p_part AND l.grp_id = p_grp AND c.part_id = p_part AND c.grp_id = p_grp;
END $$;
COMMENT ON FUNCTION queen.pass_over IS 'Internal: takes offsets from a cursor that were removed or given up.';
