-- Purpose:   reads the state of PostgreSQL's clock.
-- Returns:   one row. Of the measured steps that were not accepted and are of the last day, or still distrusted: how
--            many, the last one (seconds, negative: back; null: none) and when it was. Then the seconds by which the
--            clock is distrusted now, measured or not, and whether times are being repaired.
CREATE OR REPLACE FUNCTION queen.clock_state_v1()
RETURNS TABLE (steps bigint, last_step_s float8, last_step_at timestamptz, distrusted_s float8, repairing bool)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH told AS (
        SELECT s.id, s.at, s.seconds, s.measured, s.distrusted FROM queen.clock_steps AS s
        WHERE s.at > queen.clock() - make_interval(secs => greatest(86400, s.distrusted))
    )
    SELECT
        (SELECT count(*) FROM told AS t WHERE t.measured), l.seconds, l.at,
        (SELECT coalesce(sum(t.distrusted), 0) FROM told AS t),
        (SELECT count(*) > 0 FROM queen.clock AS c WHERE c.repaired_part IS NOT NULL)
    FROM (SELECT 1) AS one
    LEFT JOIN (SELECT t.seconds, t.at FROM told AS t WHERE t.measured ORDER BY t.id DESC LIMIT 1) AS l ON true;
END;
COMMENT ON FUNCTION queen.clock_state_v1 IS 'The state of PostgreSQL''s clock and its steps.';

-- Purpose:   trusts PostgreSQL's clock from now on: what is old by it may be removed.
-- Returns:   by how many seconds it was distrusted.
-- Locks, writes: clock_steps.
CREATE OR REPLACE FUNCTION queen.accept_clock_v1() RETURNS float8
LANGUAGE sql
AS $$
    WITH accepted AS (DELETE FROM queen.clock_steps AS s RETURNING s.distrusted)
    SELECT coalesce(sum(a.distrusted), 0) FROM accepted AS a;
$$;
COMMENT ON FUNCTION queen.accept_clock_v1 IS 'Declares PostgreSQL''s clock correct, whatever steps it has made.';
