-- What a push with SQL has beside its payload (its trace context, its headers) stands in one column, as it goes into the
-- log: with a ninth column, each row that lacks something would be eight bytes longer.
ALTER TABLE queen.outbox ALTER COLUMN traceparent DROP DEFAULT;
ALTER TABLE queen.outbox RENAME COLUMN traceparent TO fields;
UPDATE queen.outbox SET fields = '"traceparent":"' || fields || '",' WHERE fields IS NOT NULL;
COMMENT ON COLUMN queen.outbox.fields IS
'The first fields of the message''s object in queen.segments, each with a comma behind it; NULL: none.';
ALTER TABLE queen.outbox_held RENAME COLUMN traceparent TO fields;
UPDATE queen.outbox_held SET fields = '"traceparent":"' || fields || '",' WHERE fields IS NOT NULL;
COMMENT ON COLUMN queen.outbox_held.fields IS 'As in queen.outbox.';

ALTER TYPE queen.popped ADD ATTRIBUTE headers jsonb;

-- They have other arguments or columns now.
DROP FUNCTION IF EXISTS queen.push(text, jsonb, text, text, timestamptz);
DROP FUNCTION IF EXISTS queen.push_many(text, jsonb[], text[], text[], timestamptz);
DROP FUNCTION IF EXISTS queen.check_outbox_rows(text[], text[], text[]);
DROP FUNCTION IF EXISTS queen.push_timers(bigint, text[], text[], text[], timestamptz);
DROP FUNCTION IF EXISTS queen.read_outbox_v1(int, bigint);
DROP FUNCTION IF EXISTS queen.read_held_outbox_v1(int, bigint);
DROP FUNCTION IF EXISTS queen.fire_schedule_v1(bigint, text, timestamptz, timestamptz[], timestamptz, timestamptz);
