-- Queues of the SQS interface on the storage of simple-mq (ADR 64): their messages, counts and heads are in its tables.
CREATE TABLE simple_mq.sqs_queues (
    queue_id uuid PRIMARY KEY,
    store_id uuid NOT NULL UNIQUE,
    queue_name text COLLATE "C" NOT NULL UNIQUE,
    fifo bool NOT NULL,
    attributes jsonb NOT NULL,
    tags jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL,
    modified_at timestamptz NOT NULL,
    purged_at timestamptz NOT NULL DEFAULT '-infinity',
    visibility_timeout int NOT NULL
    GENERATED ALWAYS AS (coalesce((attributes ->> 'VisibilityTimeout')::int, 30)) STORED,
    delay int NOT NULL GENERATED ALWAYS AS (coalesce((attributes ->> 'DelaySeconds')::int, 0)) STORED,
    retention int NOT NULL
    GENERATED ALWAYS AS (coalesce((attributes ->> 'MessageRetentionPeriod')::int, 345600)) STORED,
    deduplication_per_group bool NOT NULL
    GENERATED ALWAYS AS (coalesce(attributes ->> 'DeduplicationScope' = 'messageGroup', false)) STORED,
    dlq_name text COLLATE "C" GENERATED ALWAYS AS (
        substring(nullif(attributes ->> 'RedrivePolicy', '')::jsonb ->> 'deadLetterTargetArn' FROM '[^:]*$')
    ) STORED,
    max_receives int
    GENERATED ALWAYS AS ((nullif(attributes ->> 'RedrivePolicy', '')::jsonb ->> 'maxReceiveCount')::int) STORED
) WITH (fillfactor = 90);
CREATE INDEX sqs_queues_dlq ON simple_mq.sqs_queues (dlq_name, queue_name) WHERE dlq_name IS NOT NULL;
COMMENT ON TABLE simple_mq.sqs_queues IS
'One row a queue of SQS. Delete with simple_mq.sqs_delete_queue_v1, which takes the messages along.';
COMMENT ON COLUMN simple_mq.sqs_queues.store_id IS
'The queue_id of its rows in messages, counts and heads. A purge gives the queue another one.';
COMMENT ON COLUMN simple_mq.sqs_queues.attributes IS
'The attributes that were set, as SQS names them. The generated columns are what the procedures need of them.';
COMMENT ON COLUMN simple_mq.sqs_queues.dlq_name IS
'The queue of its dead letters; if there is none of this name, messages stay.';

-- What every shard counts beside its messages; simple-mq's own queues leave both at 0.
ALTER TABLE simple_mq.counts ADD COLUMN in_flight bigint NOT NULL DEFAULT 0;
ALTER TABLE simple_mq.counts ADD COLUMN delayed bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN simple_mq.counts.in_flight IS 'SQS: the messages in state t.';
COMMENT ON COLUMN simple_mq.counts.delayed IS 'SQS: the messages in state d.';

ALTER TABLE simple_mq.messages ADD COLUMN attributes bytea;
ALTER TABLE simple_mq.messages ADD COLUMN key_id text;
ALTER TABLE simple_mq.messages ADD COLUMN deduplication_id text COLLATE "C";
ALTER TABLE simple_mq.messages ADD COLUMN source_id uuid;
ALTER TABLE simple_mq.messages ADD COLUMN first_received_at timestamptz;
ALTER TABLE simple_mq.messages ADD COLUMN earlier_receives int;
CREATE INDEX messages_delayed ON simple_mq.messages (queue_id, visible_at, message_id) WHERE state = 'd';
COMMENT ON COLUMN simple_mq.messages.state IS
'w waiting since its enqueue; r ready: waiting again, or for the first time out of the order of enqueues; t taken, hidden until visible_at and ready from then on; x exhausted: the dead-letter queue has no room; b behind another message of its group; d (SQS) delayed: ready from visible_at on, in a FIFO queue the delay of the queue after visible_at.';
COMMENT ON COLUMN simple_mq.messages.attributes IS 'SQS: the attributes of the message, opaque.';
COMMENT ON COLUMN simple_mq.messages.key_id IS 'SQS: the key with which data and attributes are encrypted; NULL: they are not.';
COMMENT ON COLUMN simple_mq.messages.source_id IS 'SQS: the queue of which it is a dead letter.';
COMMENT ON COLUMN simple_mq.messages.earlier_receives IS
'SQS: its delivery count when it became a dead letter; NULL: 0. These do not count for the next dead-letter queue.';

CREATE TABLE simple_mq.sqs_deduplication (
    store_id uuid NOT NULL,
    deduplication_id text COLLATE "C" NOT NULL,
    message_group text COLLATE "C" NOT NULL,
    message_id uuid NOT NULL,
    sent_at timestamptz NOT NULL,
    PRIMARY KEY (store_id, deduplication_id, message_group)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000);
CREATE INDEX sqs_deduplication_sent_at ON simple_mq.sqs_deduplication (sent_at);
COMMENT ON TABLE simple_mq.sqs_deduplication IS
'The first sending of each deduplication id. It counts for five minutes, whatever becomes of the message, but no longer than until a purge.';
COMMENT ON COLUMN simple_mq.sqs_deduplication.message_group IS 'Empty unless the ids of a queue count per group.';

CREATE TABLE simple_mq.sqs_attempts (
    store_id uuid NOT NULL,
    attempt_id text COLLATE "C" NOT NULL,
    received_at timestamptz NOT NULL,
    visible_at timestamptz NOT NULL,
    message_ids uuid[] NOT NULL,
    delivery_counts int[] NOT NULL,
    PRIMARY KEY (store_id, attempt_id)
) WITH (fillfactor = 90);
CREATE INDEX sqs_attempts_received_at ON simple_mq.sqs_attempts (received_at);
COMMENT ON TABLE simple_mq.sqs_attempts IS
'What receives with an attempt id returned, so that one whose answer was lost returns it again.';

CREATE TABLE simple_mq.sqs_moves (
    move_id uuid PRIMARY KEY,
    source_id uuid NOT NULL,
    destination_id uuid,
    per_s int,
    status text NOT NULL,
    failure text,
    started_at timestamptz NOT NULL,
    stepped_at timestamptz NOT NULL,
    to_move bigint NOT NULL,
    moved bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX sqs_moves_running ON simple_mq.sqs_moves (source_id) WHERE status = 'RUNNING';
CREATE INDEX sqs_moves_source ON simple_mq.sqs_moves (source_id, started_at);
COMMENT ON TABLE simple_mq.sqs_moves IS 'The message move tasks. A background job carries them out in steps.';
COMMENT ON COLUMN simple_mq.sqs_moves.destination_id IS 'NULL: each message goes back to the queue that it comes from.';
COMMENT ON COLUMN simple_mq.sqs_moves.status IS 'RUNNING, COMPLETED, CANCELLED or FAILED.';
