-- It returns a column more, and has other arguments.
DROP FUNCTION IF EXISTS queen.outbox_ranges(pg_snapshot, pg_snapshot) CASCADE;
