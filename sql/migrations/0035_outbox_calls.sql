-- A row of the outbox has the messages of one call, not one of them: what a row costs is paid once for all (ADR 54).
ALTER TABLE queen.outbox
    ALTER COLUMN partition TYPE text[] COLLATE "C" USING ARRAY[partition],
    ALTER COLUMN transaction_id TYPE text[] USING CASE WHEN transaction_id IS NOT NULL THEN ARRAY[transaction_id] END,
    ALTER COLUMN fields TYPE text[] USING CASE WHEN fields IS NOT NULL THEN ARRAY[fields] END,
    ALTER COLUMN payload SET STORAGE EXTERNAL,
    ADD COLUMN n int NOT NULL DEFAULT 1;
ALTER TABLE queen.outbox ALTER COLUMN n DROP DEFAULT;
ALTER TABLE queen.outbox RENAME COLUMN partition TO partitions;
ALTER TABLE queen.outbox RENAME COLUMN transaction_id TO transaction_ids;
ALTER TABLE queen.outbox RENAME COLUMN payload TO payloads;
COMMENT ON TABLE queen.outbox IS
'Messages that queen.push has written and that are not in the log yet, by call, in the order of their transactions.';
COMMENT ON COLUMN queen.outbox.n IS 'The number of messages.';
COMMENT ON COLUMN queen.outbox.partitions IS 'One per message, or one for all.';
COMMENT ON COLUMN queen.outbox.transaction_ids IS 'One per message; NULL: none has one.';
COMMENT ON COLUMN queen.outbox.fields IS
'One per message, or one for all: the first fields of its object in queen.segments, each with a comma behind it; NULL: none.';
COMMENT ON COLUMN queen.outbox.payloads IS 'One line of JSON per message. A jsonb has no line break as text.';

-- The numbers of the rows have counted the messages until now.
ALTER TABLE queen.outbox_position ADD COLUMN messages bigint NOT NULL DEFAULT 0;
UPDATE queen.outbox_position SET messages = coalesce((
    SELECT s.last_value FROM pg_sequences AS s WHERE s.schemaname = 'queen' AND s.sequencename = 'outbox_seq_seq'), 0);
COMMENT ON COLUMN queen.outbox_position.messages IS 'How many messages have left the outbox.';

-- They have other arguments or columns now.
DROP FUNCTION IF EXISTS queen.read_outbox_v1(int, bigint);
DROP FUNCTION IF EXISTS queen.check_outbox_rows(text[], text[], text[], jsonb[]);
DROP FUNCTION IF EXISTS queen.append_accepted(
    uuid, timestamptz, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint
);
DROP FUNCTION IF EXISTS queen.move_outbox_v1(
    bigint, text, bool, text, bigint, int, bigint[], text[], text, uuid,
    bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint
);
