-- Purpose:   timers that are due and not in the log yet, for metrics.
-- Returns:   one row: their number, counted up to p_most, and for how many seconds the first of them has been due.
CREATE OR REPLACE FUNCTION queen.count_timers_v1(p_most int) RETURNS TABLE (overdue bigint, oldest_s float8)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN QUERY
    SELECT count(*), coalesce(greatest(0, date_part('epoch', v_now - min(d.deliver_at))), 0)
    FROM (
        SELECT t.deliver_at FROM queen.timers AS t WHERE t.deliver_at <= v_now ORDER BY t.deliver_at LIMIT p_most
    ) AS d;
END $$;
COMMENT ON FUNCTION queen.count_timers_v1 IS 'Timers that are due and not in the log yet.';
