-- Messages of the outbox that cannot go into the log yet wait apart, with those that came later in their partitions, so
-- that they hold nothing else back (ADR 54).
CREATE TABLE queen.outbox_held_partitions (
    queue_id bigint,
    partition text COLLATE "C",
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    reason text NOT NULL,
    tries int NOT NULL DEFAULT 0,
    retry_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    moved_seq bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (queue_id, partition)
);
CREATE INDEX outbox_held_partitions_retry_at ON queen.outbox_held_partitions (retry_at);
COMMENT ON TABLE queen.outbox_held_partitions IS
'Partitions whose messages of the outbox wait in outbox_held. Those up to moved_seq are in the log.';

CREATE TABLE queen.outbox_held (
    queue_id bigint,
    partition text COLLATE "C",
    seq bigint GENERATED ALWAYS AS IDENTITY,
    transaction_id text,
    traceparent text,
    payload text NOT NULL,
    pushed_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, partition, seq)
);
COMMENT ON TABLE queen.outbox_held IS
'Messages of the outbox that are held back, in the order in which they go into the log.';

-- They have other columns and arguments now.
DROP FUNCTION IF EXISTS queen.read_outbox_v1(int, bigint);
DROP FUNCTION IF EXISTS queen.move_outbox_v1(
    bigint, text, bool, text, bigint, int, uuid,
    bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint
);
DROP FUNCTION IF EXISTS queen.check_outbox_rows(jsonb[], text[], text[]);
DROP FUNCTION IF EXISTS queen.configure_queue_v1(
    text, text, text, int, int, int, int, int, int, bool, bool, bool, int, int, int, int, int, bool, int
);
DROP FUNCTION IF EXISTS queen.get_configuration_v1(text);

-- The W3C trace context of a push, from the setting queen.traceparent; one in another form is ignored.
ALTER TABLE queen.outbox ADD COLUMN traceparent text DEFAULT substring(
    current_setting('queen.traceparent', true) FROM '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
);

-- A queue can be closed to pushes with SQL.
ALTER TABLE queen.queues ADD COLUMN sql_push bool NOT NULL DEFAULT true;
