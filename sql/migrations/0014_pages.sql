-- Lists in pages: their arguments or results have changed.
DROP FUNCTION IF EXISTS queen.list_queues_v1(text, text, text, int, int);
DROP FUNCTION IF EXISTS queen.count_labels_v1(bool);
DROP FUNCTION IF EXISTS queen.list_groups_v1();
DROP FUNCTION IF EXISTS queen.list_queue_metrics_v1(
    timestamptz, timestamptz, int, text, text, text, bool, bool, bool
);
DROP FUNCTION IF EXISTS queen.list_worker_metrics_v1(timestamptz, timestamptz, int, text, int, bool, bool);
DROP FUNCTION IF EXISTS queen.list_messages_v1(text, text, text, text, text, timestamptz, timestamptz, int, int, int);
DROP FUNCTION IF EXISTS queen.list_dead_letters_v1(text, text, text, timestamptz, timestamptz, int, int);
DROP FUNCTION IF EXISTS queen.delete_dead_letters_v1(bigint, text, text);
DROP FUNCTION IF EXISTS queen.list_traces_v1(bigint, bigint, uuid, text, int, int);
DROP FUNCTION IF EXISTS queen.list_trace_names_v1(int, int);
DROP FUNCTION IF EXISTS queen.count_traces_v1(text);
DROP FUNCTION IF EXISTS queen.delete_queue_v1(text);
DROP FUNCTION IF EXISTS queen.delete_group_v1(text, text, bool);
DROP FUNCTION IF EXISTS queen.refresh_statistics_v1(bigint, bool);
DROP FUNCTION IF EXISTS queen.find_encrypted_segments_v1(bigint, bigint, int);
DROP FUNCTION IF EXISTS queen.find_encrypted_letters_v1(bigint, text, int);

DROP FUNCTION IF EXISTS queen.register_stream_v1(text, text, text, text, bool);
DROP FUNCTION IF EXISTS queen.give_up(queen.queues, bigint, bigint, timestamptz, int, timestamptz);
DROP FUNCTION IF EXISTS simple_mq.move_back(uuid, uuid, uuid, text);

-- Dead letters of a queue or partition in the order in which they are listed and deleted, and those of a message by its
-- transaction id.
DROP INDEX queen.dead_letter_queue_queue;
CREATE INDEX dead_letter_queue_queue ON queen.dead_letter_queue (queue_id, failed_at DESC, id DESC);
CREATE INDEX dead_letter_queue_partition ON queen.dead_letter_queue (part_id, failed_at DESC, id DESC);
CREATE INDEX dead_letter_queue_transaction ON queen.dead_letter_queue (part_id, transaction_id);

-- The state of one stream, and its windows that are over. With room for new versions of rows, which then need no index entries.
ALTER TABLE queen.stream_state SET (fillfactor = 50);
CREATE INDEX stream_state_stream ON queen.stream_state (stream_id, part_id, window_end);

-- What is left of partitions that are gone for everybody.
CREATE TABLE queen.removed_partitions (
    part_id bigint PRIMARY KEY
);
COMMENT ON TABLE queen.removed_partitions IS
'Partitions of deleted queues that nobody sees any more, while what they held is being removed, step by step.';

-- Metrics of all queues together, and how busy each was: what is asked of all of them looks at no row of each.
CREATE TABLE queen.total_metrics (
    bucket timestamptz NOT NULL,
    worker text NOT NULL,
    push_requests bigint NOT NULL,
    push_messages bigint NOT NULL,
    pop_requests bigint NOT NULL,
    pop_messages bigint NOT NULL,
    pop_empty bigint NOT NULL,
    ack_requests bigint NOT NULL,
    ack_success bigint NOT NULL,
    ack_failed bigint NOT NULL,
    dead_letters bigint NOT NULL,
    transactions bigint NOT NULL,
    lag_ms_sum float8 NOT NULL,
    lag_ms_max float8 NOT NULL,
    parked bigint NOT NULL,
    PRIMARY KEY (bucket, worker)
);
COMMENT ON TABLE queen.total_metrics IS 'What each worker did for all queues together, by minute.';
INSERT INTO queen.total_metrics
SELECT
    m.bucket, m.worker, sum(m.push_requests), sum(m.push_messages), sum(m.pop_requests), sum(m.pop_messages),
    sum(m.pop_empty), sum(m.ack_requests), sum(m.ack_success), sum(m.ack_failed), sum(m.dead_letters),
    sum(m.transactions), sum(m.lag_ms_sum), max(m.lag_ms_max), sum(m.parked)
FROM queen.queue_metrics AS m GROUP BY m.bucket, m.worker;

CREATE TABLE queen.busy_queues (
    minutes int NOT NULL,
    bucket timestamptz NOT NULL,
    queue text COLLATE "C" NOT NULL,
    messages bigint NOT NULL,
    PRIMARY KEY (minutes, bucket, queue)
);
COMMENT ON TABLE queen.busy_queues IS 'Messages that were pushed, popped and acked of each queue, by hours and days (60 and 1440 minutes).';
INSERT INTO queen.busy_queues
SELECT u.minutes, u.bucket, u.queue, sum(u.messages)
FROM (
    SELECT
        l.minutes, m.queue, m.push_messages + m.pop_messages + m.ack_success + m.ack_failed AS messages,
        to_timestamp(floor(date_part('epoch', m.bucket) / (60 * l.minutes)) * 60 * l.minutes) AS bucket
    FROM queen.queue_metrics AS m CROSS JOIN (VALUES (60), (1440)) AS l (minutes)
) AS u
GROUP BY u.minutes, u.bucket, u.queue;

CREATE INDEX queue_metrics_queue ON queen.queue_metrics (queue, bucket);
CREATE INDEX queue_metrics_parked ON queen.queue_metrics (bucket, queue, worker) WHERE parked > 0;
