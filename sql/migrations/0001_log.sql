-- The log: queues, partitions and their heads, segments, cursors, exact dedupe, dead letters.
-- Migrations are applied once, in order, and never edited after a release; procedures are replaced at every start.

CREATE TABLE queen.queues (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    namespace text NOT NULL DEFAULT '',
    task text NOT NULL DEFAULT '',
    priority int NOT NULL DEFAULT 0,
    lease_time int NOT NULL DEFAULT 60,
    retry_limit int NOT NULL DEFAULT 3,
    retry_delay int,
    delayed_processing int NOT NULL DEFAULT 0,
    window_buffer int NOT NULL DEFAULT 0,
    dead_letter_queue bool,
    dlq_after_max_retries bool,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX queues_namespace_task ON queen.queues (namespace, task);
COMMENT ON TABLE queen.queues IS
'One row a queue, with its options: seconds, except retry_delay (ms). NULL means: not set by anyone. DELETE removes everything of the queue.';

CREATE TABLE queen.partitions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (queue_id, name)
);
COMMENT ON TABLE queen.partitions IS
'An ordered lane of a queue. Its public id is the UUID that queen.partition_uuid(id) computes.';

CREATE TABLE queen.partition_lookup (
    part_id bigint PRIMARY KEY,
    next_off bigint NOT NULL DEFAULT 0,
    last_at timestamptz NOT NULL DEFAULT '-infinity',
    parked bool NOT NULL DEFAULT true
) WITH (
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.1
);
COMMENT ON TABLE queen.partition_lookup IS
'The head of each partition. A push locks it until its commit, so commit order is offset order and no reader can pass a message that commits later.';
COMMENT ON COLUMN queen.partition_lookup.next_off IS 'Offset of the next message; offsets are dense from 0.';
COMMENT ON COLUMN queen.partition_lookup.last_at IS 'created_at of the newest segment; created_at never falls within a partition.';
COMMENT ON COLUMN queen.partition_lookup.parked IS 'Whether some cursor of the partition waits (ready_at = infinity) for the next push to wake it.';

CREATE TABLE queen.segments (
    part_id bigint NOT NULL,
    last_off bigint NOT NULL,
    n int NOT NULL,
    created_at timestamptz NOT NULL,
    flush uuid NOT NULL,
    ids bytea,
    ends bytea NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (part_id, last_off)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.5);
COMMENT ON TABLE queen.segments IS
'The messages of one partition that one flush wrote: offsets last_off - n + 1 to last_off. See the view queen.messages for one row a message.';
COMMENT ON COLUMN queen.segments.flush IS 'Id of the procedure call that wrote the segment: how a retry after an unknown commit finds out that it had succeeded.';
COMMENT ON COLUMN queen.segments.ids IS
'16 bytes a message: the start of the SHA-256 of the transaction id that its producer chose, or zeros if the server made it. NULL if it made them all.';
COMMENT ON COLUMN queen.segments.ends IS
'4 bytes a message, big-endian: where its object ends in data, so that a part of a segment can be read without decoding it.';
COMMENT ON COLUMN queen.segments.data IS
'JSON array, one object a message: payload, and where given transactionId, traceId, producerSub.';

-- lz4 costs a tenth of pglz; a server built without it stores segments uncompressed rather than slowly.
DO $$
BEGIN
    ALTER TABLE queen.segments ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    ALTER TABLE queen.segments ALTER COLUMN data SET STORAGE EXTERNAL;
END $$;
ALTER TABLE queen.segments ALTER COLUMN ids SET STORAGE EXTERNAL;
ALTER TABLE queen.segments ALTER COLUMN ends SET STORAGE EXTERNAL;

CREATE TABLE queen.transaction_ids (
    part_id bigint NOT NULL,
    hash uuid NOT NULL,
    off bigint NOT NULL,
    PRIMARY KEY (part_id, hash)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.5);
COMMENT ON TABLE queen.transaction_ids IS
'Exact dedupe: the transaction ids that clients chose (queen.transaction_hash), for as long as their message is kept.';

CREATE TABLE queen.consumer_groups_metadata (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    subscription_mode text NOT NULL CHECK (subscription_mode IN ('all', 'new', 'timestamp')),
    since timestamptz NOT NULL,
    starts_at timestamptz,
    subscribed_upto bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    UNIQUE (queue_id, name)
);
COMMENT ON TABLE queen.consumer_groups_metadata IS
'A consumer group of a queue: where it began. The group of consumers that name none is __QUEUE_MODE__.';
COMMENT ON COLUMN queen.consumer_groups_metadata.since IS 'Messages created at or before this time are not delivered to the group.';
COMMENT ON COLUMN queen.consumer_groups_metadata.starts_at IS 'A since that lay in the future at first contact and has not come yet; else NULL.';
COMMENT ON COLUMN queen.consumer_groups_metadata.subscribed_upto IS
'Cursors exist for all partitions up to this id; 2^63 - 1 when the group has them all.';

CREATE TABLE queen.partition_consumers (
    part_id bigint NOT NULL,
    grp_id bigint NOT NULL,
    acked bigint NOT NULL,
    ahead int8multirange,
    lease uuid,
    upto bigint NOT NULL,
    seen bigint NOT NULL,
    seen_before bigint NOT NULL DEFAULT -1,
    attempts int NOT NULL DEFAULT 0,
    ready_at timestamptz NOT NULL,
    retries jsonb,
    PRIMARY KEY (part_id, grp_id)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.1
);
-- part_id decides ties, so that what a pop takes follows from the data alone.
CREATE INDEX partition_consumers_ready ON queen.partition_consumers (grp_id, ready_at, part_id);
CREATE INDEX partition_consumers_lease ON queen.partition_consumers (lease) WHERE lease IS NOT NULL;
COMMENT ON TABLE queen.partition_consumers IS
'Cursor and lease of each (partition, group).';
COMMENT ON COLUMN queen.partition_consumers.acked IS 'The highest offset such that it and all below are done; -1 at first.';
COMMENT ON COLUMN queen.partition_consumers.ahead IS 'Offsets above acked that are done already, because acks came out of order.';
COMMENT ON COLUMN queen.partition_consumers.lease IS 'The lease given last; it lives while ready_at is in the future. NULL when it was ended.';
COMMENT ON COLUMN queen.partition_consumers.upto IS 'The last offset under the lease.';
COMMENT ON COLUMN queen.partition_consumers.seen IS 'The highest offset ever delivered.';
COMMENT ON COLUMN queen.partition_consumers.seen_before IS 'What seen was before the lease was given: a lease that reached nobody is taken back.';
COMMENT ON COLUMN queen.partition_consumers.attempts IS 'How often something up to seen was delivered; 0 when all of that is done.';
COMMENT ON COLUMN queen.partition_consumers.ready_at IS
'When the cursor may be claimed: now, the end of its lease, the time of a retry, or infinity when it is parked until the next push.';
COMMENT ON COLUMN queen.partition_consumers.retries IS 'Failures counted against messages that are not done, by offset.';

CREATE TABLE queen.dead_letter_queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    part_id bigint NOT NULL,
    off bigint NOT NULL,
    grp_id bigint NOT NULL,
    consumer_group text NOT NULL,
    transaction_id text NOT NULL,
    trace_id text,
    producer_sub text,
    payload json NOT NULL,
    error text NOT NULL,
    retry_count int NOT NULL,
    created_at timestamptz NOT NULL,
    failed_at timestamptz NOT NULL,
    UNIQUE (part_id, off, grp_id)
);
CREATE INDEX dead_letter_queue_queue ON queen.dead_letter_queue (queue_id, failed_at DESC);
COMMENT ON TABLE queen.dead_letter_queue IS
'Messages that a group gave up, with their own copy of the payload and the error; retention does not touch them.';

CREATE TABLE queen.fenced_flushes (
    flush uuid PRIMARY KEY,
    fenced_at timestamptz NOT NULL
);
COMMENT ON TABLE queen.fenced_flushes IS
'Flushes that were sent again after an unknown commit: the first sending, should it still arrive, finds itself here and writes nothing.';

CREATE TABLE queen.system_state (
    key text PRIMARY KEY,
    value jsonb NOT NULL,
    updated_at timestamptz NOT NULL
);
COMMENT ON TABLE queen.system_state IS 'Switches of the whole installation, such as maintenance_mode.';

CREATE TYPE queen.ack_result AS (
    ord int, problem text, done_upto bigint, also_done bigint [], within bigint, dead bool
);
COMMENT ON TYPE queen.ack_result IS 'Internal: what ack_cursor says of one element, while it still gathers.';

CREATE TYPE queen.claims AS (
    complete bool,
    pop int [], part_id bigint [], grp_id bigint [], acked bigint [], upto bigint [], ahead int8multirange [],
    seen bigint [], attempt int [], ready_at timestamptz [],
    idle_part bigint [], idle_grp bigint [], again_at timestamptz [], delay int [], pause int []
);
COMMENT ON TYPE queen.claims IS
'Internal: what a pop call claims, and the cursors that it found with nothing to deliver; one array a column, NULL for none.';
