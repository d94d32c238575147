-- What queen.ack_cursor says of one element, while it still gathers.
DO $$
BEGIN
    CREATE TYPE queen.ack_result AS (
        ord int, problem text, done_upto bigint, within bigint, released bool, dead bool
    );
EXCEPTION WHEN duplicate_object THEN
    NULL;
END $$;
COMMENT ON TYPE queen.ack_result IS 'Internal: what ack_cursor says of one element.';
