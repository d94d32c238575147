-- What a message had beside its payload, kept with its dead letter (ADR 56). NULL, the usual case, takes no room.
ALTER TABLE queen.dead_letter_queue ADD COLUMN headers jsonb;
COMMENT ON COLUMN queen.dead_letter_queue.headers IS 'Texts by name, as pushed.';

-- Their columns change; the new ones are made at every start.
DROP FUNCTION IF EXISTS queen.segment_messages(bigint, bigint, bigint[]);
DROP FUNCTION IF EXISTS queen.read_messages(bigint[], bigint[], bigint[], int);
DROP FUNCTION IF EXISTS queen.list_messages_v1(
    text, text, text, text, text, timestamptz, timestamptz, int, int, int, int
);
DROP FUNCTION IF EXISTS queen.get_message_v1(bigint, bigint, uuid);
DROP FUNCTION IF EXISTS queen.list_dead_letters_v1(
    text, text, text, timestamptz, timestamptz, int, int, int, int
);
DROP FUNCTION IF EXISTS queen.find_dead_letter_v1(bigint, bigint, bigint, text);
