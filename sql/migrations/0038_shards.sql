-- One installation over several databases (ADR 68). Both tables are empty in a database that is used alone.
CREATE TABLE queen.shards (
    slot int PRIMARY KEY CHECK (slot BETWEEN 0 AND 255),
    name text COLLATE "C" NOT NULL UNIQUE,
    own bool NOT NULL,
    added_in int NOT NULL,
    drained_in int,
    retired bool NOT NULL DEFAULT false
);
COMMENT ON TABLE queen.shards IS 'The databases of an installation that has several; the same in each of them but for own.';
COMMENT ON COLUMN queen.shards.slot IS 'Number of the shard: the first 8 of the 48 bits of its ids. Never used again.';
COMMENT ON COLUMN queen.shards.own IS 'Whether it is this database.';
COMMENT ON COLUMN queen.shards.added_in IS 'The version of the list that began to place partitions here.';
COMMENT ON COLUMN queen.shards.drained_in IS 'The version that ended that; null: it still does.';
COMMENT ON COLUMN queen.shards.retired IS 'Whether it has no partitions any more, and may be gone.';

ALTER TABLE queen.queues ADD COLUMN colocate_with text;
COMMENT ON COLUMN queen.queues.colocate_with IS
    'The queue whose partitions are in the same database as those of the same names of this one; null: this one.';
DROP FUNCTION IF EXISTS queen.configure_queue_v1(
    text, text, text, int, int, int, int, int, int, bool, bool, bool, int, int, int, int, int, bool, int, bool);
DROP FUNCTION IF EXISTS queen.get_configuration_v1(text);
DROP FUNCTION IF EXISTS queen.read_push_options_v1();

CREATE TABLE queen.shard_list (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    version int NOT NULL,
    opened int NOT NULL CHECK (opened <= version)
);
COMMENT ON TABLE queen.shard_list IS 'One row: the version of queen.shards.';
COMMENT ON COLUMN queen.shard_list.version IS 'The newest version that is known here.';
COMMENT ON COLUMN queen.shard_list.opened IS
    'The newest version that places partitions. While it is the version before, partitions that the two place '
    'differently are not made.';
