-- The one clock of all procedures. A test sets queen.clock in its session; nobody else does.
CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(nullif(current_setting('queen.clock', true), '')::timestamptz, clock_timestamp());
COMMENT ON FUNCTION queen.clock() IS 'The time that decides leases, retries and created_at: the database''s, unless a test has set queen.clock.';
