-- The one clock of all procedures. Only tests set queen.clock in their session.
-- In plpgsql, because a SQL function that cannot be inlined is planned again by each statement that calls it.
CREATE OR REPLACE FUNCTION queen.clock() RETURNS timestamptz
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN coalesce(nullif(current_setting('queen.clock', true), '')::timestamptz, clock_timestamp());
END $$;
COMMENT ON FUNCTION queen.clock() IS
    'The time that decides leases, retries and created_at: that of the database, unless a test sets queen.clock.';
