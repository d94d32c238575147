-- Messages created before this time are older than p_age, by time that has really passed as far as it was measured:
-- only they may be removed for their age. Messages stored before a step forward count as that much younger, until p_age
-- has passed since the step (ADR 44).
-- Arguments: p_not_after  what the clock shows at most, as its caller's own clock says, which does not step; null: not later than
--                         a minute after the leader's last look
CREATE OR REPLACE FUNCTION queen.older_than(p_age interval, p_not_after timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_before timestamptz;
    v_step record;
BEGIN
    SELECT least(queen.clock(), coalesce(p_not_after, max(c.looked_at) + interval '1 minute')) - p_age INTO v_before
    FROM queen.clock AS c;
    FOR v_step IN SELECT s.at, s.distrusted FROM queen.clock_steps AS s WHERE s.distrusted > 0 ORDER BY s.id DESC LOOP
        EXIT WHEN v_before >= v_step.at;
        v_before := v_before - make_interval(secs => v_step.distrusted);
    END LOOP;
    RETURN v_before;
END $$;
COMMENT ON FUNCTION queen.older_than IS
    'Internal: the time before which data is older than an age, corrected for steps of the clock.';
