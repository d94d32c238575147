-- Purpose:   the steps of PostgreSQL's clock that matter still: those of the last day, and those that somebody should accept.
-- Returns:   one row a step, newest first: when, by how much, whether it was measured, and what of it is distrusted.
CREATE OR REPLACE FUNCTION queen.clock_steps_v1()
RETURNS TABLE (at timestamptz, seconds float8, measured bool, distrusted float8)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.at, s.seconds, s.measured, s.distrusted FROM queen.clock_steps AS s
    WHERE s.at > queen.clock() - make_interval(secs => greatest(86400, s.distrusted))
    ORDER BY s.id DESC;
END;
COMMENT ON FUNCTION queen.clock_steps_v1 IS 'The steps of PostgreSQL''s clock that matter still.';
