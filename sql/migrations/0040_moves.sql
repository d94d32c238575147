-- Partitions move between the databases of an installation (ADR 69).
CREATE TABLE queen.moved_partitions (
    part_id bigint PRIMARY KEY,
    queue text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    queue_id bigint NOT NULL,
    slot int NOT NULL,
    state text NOT NULL CHECK (state IN ('awaited', 'here', 'sealed', 'gone')),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    contents jsonb
);
CREATE INDEX moved_partitions_seq ON queen.moved_partitions (seq);
CREATE INDEX moved_partitions_open ON queen.moved_partitions (queue_id, partition) WHERE state IN ('awaited', 'sealed');
COMMENT ON TABLE queen.moved_partitions IS
'Partitions that are moved from or to this database, or were. They keep their numbers, which name the database that made them.';
COMMENT ON COLUMN queen.moved_partitions.queue_id IS 'The number of the queue in this database.';
COMMENT ON COLUMN queen.moved_partitions.slot IS 'Number of the shard to which it is, or was, moved.';
COMMENT ON COLUMN queen.moved_partitions.state IS
'awaited: it is to come here; here: it has come; sealed: it is on its way from here, and no call can use it; gone: it is there.';
COMMENT ON COLUMN queen.moved_partitions.seq IS 'A new one at each change: workers read what has changed.';
COMMENT ON COLUMN queen.moved_partitions.contents IS
'While it is sealed: its cursors, timers and schedules, and when it was sealed.';

-- What a moved partition leaves behind stays for a while: a push that is repeated finds there that it was stored.
ALTER TABLE queen.removed_partitions ADD COLUMN not_before timestamptz NOT NULL DEFAULT '-infinity';
COMMENT ON COLUMN queen.removed_partitions.not_before IS 'What is left is not removed earlier.';
