CREATE OR REPLACE FUNCTION queen.bucket(p_time timestamptz, p_minutes int) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN to_timestamp(floor(date_part('epoch', p_time) / (60 * p_minutes)) * 60 * p_minutes);
COMMENT ON FUNCTION queen.bucket IS
    'Internal: the start of the bucket that contains a time. Buckets have the given number of minutes and count '
    'from 1970 in UTC.';
