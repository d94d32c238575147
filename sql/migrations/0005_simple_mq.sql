-- simple-mq: queues with a size limit, one row a message, visibility timeouts. Nothing here touches the log of 0001.
CREATE SCHEMA simple_mq;
COMMENT ON SCHEMA simple_mq IS 'The simple-mq interface (docs/simple-mq.md): its own queues and messages.';

CREATE TABLE simple_mq.queues (
    queue_id uuid PRIMARY KEY,
    queue_name text NOT NULL,
    queue_size int NOT NULL,
    visibility_timeout int NOT NULL,
    max_deliveries int NOT NULL,
    max_message_bytes int,
    dlq_id uuid,
    parent_id uuid,
    created_at timestamptz NOT NULL
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX queues_dlq_id ON simple_mq.queues (dlq_id) WHERE dlq_id IS NOT NULL;
COMMENT ON TABLE simple_mq.queues IS 'One row a queue. Delete with simple_mq.delete_queue_v1, which takes the messages along.';
COMMENT ON COLUMN simple_mq.queues.visibility_timeout IS 'Seconds that a polled message stays hidden.';
COMMENT ON COLUMN simple_mq.queues.max_message_bytes IS 'Most bytes of one message in UTF-8; NULL: the server''s limit only.';
COMMENT ON COLUMN simple_mq.queues.dlq_id IS 'Where its dead letters go; NULL until there is one.';
COMMENT ON COLUMN simple_mq.queues.parent_id IS 'The queue whose dead letters these are; NULL in a queue that somebody created. Stays when the parent is deleted.';

CREATE TABLE simple_mq.counts (
    queue_id uuid NOT NULL,
    shard smallint NOT NULL,
    messages bigint NOT NULL DEFAULT 0,
    last_at timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (queue_id, shard)
) WITH (
    fillfactor = 30,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
COMMENT ON TABLE simple_mq.counts IS
'The message count of a queue is the sum of its shards. Who adds messages locks shard 0, compares the sum with the size and raises shard 0; who removes some lowers one of the shards 1 to 8, of its own back end, and waits for nobody.';

COMMENT ON COLUMN simple_mq.counts.last_at IS 'In shard 0: created_at of the newest enqueue. It never falls, also if the clock does.';

CREATE TABLE simple_mq.heads (
    queue_id uuid PRIMARY KEY,
    waiting_from timestamptz NOT NULL DEFAULT '-infinity',
    checked_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
COMMENT ON TABLE simple_mq.heads IS
'Where a poll begins to look for waiting messages: none is older. Spares it the index entries of those that are gone, which only a vacuum removes.';

CREATE TABLE simple_mq.messages (
    queue_id uuid NOT NULL,
    message_id uuid NOT NULL,
    state "char" NOT NULL, -- noqa: RF06
    delivery_count int NOT NULL DEFAULT 0,
    visible_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    message_group text COLLATE "C",
    data text NOT NULL,
    PRIMARY KEY (queue_id, message_id)
) WITH (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.2
);
CREATE INDEX messages_waiting ON simple_mq.messages (queue_id, message_id) WHERE state = 'w';
CREATE INDEX messages_ready ON simple_mq.messages (queue_id, message_id) WHERE state = 'r';
CREATE INDEX messages_taken ON simple_mq.messages (queue_id, visible_at) WHERE state = 't';
CREATE INDEX messages_exhausted ON simple_mq.messages (queue_id, message_id) WHERE state = 'x';
CREATE INDEX messages_behind ON simple_mq.messages (queue_id, message_group, message_id) WHERE state = 'b';
CREATE INDEX messages_leading ON simple_mq.messages (queue_id, message_group)
WHERE message_group IS NOT NULL AND state IN ('w', 'r', 't');
COMMENT ON TABLE simple_mq.messages IS
'One row a message. A message id begins with created_at in microseconds, so the order of the ids is that of (created_at, message_id).';
COMMENT ON COLUMN simple_mq.messages.state IS
'w waiting since its enqueue; r ready: waiting again, or for the first time out of the order of enqueues; t taken, hidden until visible_at and ready from then on; x exhausted: the dead-letter queue has no room; b behind another message of its group.';
COMMENT ON COLUMN simple_mq.messages.message_group IS 'Messages of a group are delivered in order, one at a time. NULL: no order.';

CREATE TABLE simple_mq.flushes (
    flush_id uuid PRIMARY KEY,
    created_at timestamptz NOT NULL,
    outcomes text[] NOT NULL
);
COMMENT ON TABLE simple_mq.flushes IS
'What became of the enqueue calls of the last minutes, so that one whose answer was lost can be sent again.';

CREATE TABLE simple_mq.deleted_queues (
    queue_id uuid PRIMARY KEY
);
COMMENT ON TABLE simple_mq.deleted_queues IS 'Queues that are gone for everybody while their messages are still being removed, step by step.';

CREATE TABLE simple_mq.outcomes (
    queue_id uuid NOT NULL,
    operation text NOT NULL,
    outcome text NOT NULL,
    total bigint NOT NULL,
    PRIMARY KEY (queue_id, operation, outcome)
) WITH (fillfactor = 50);
COMMENT ON TABLE simple_mq.outcomes IS
'Counters for the metrics: how often an operation ended so. They go with their queue; the nil UUID stands for no queue.';
