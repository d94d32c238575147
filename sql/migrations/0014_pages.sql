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
DROP FUNCTION IF EXISTS queen.count_dead_letters_v1(text, text, text, timestamptz, timestamptz, int);
DROP FUNCTION IF EXISTS queen.delete_dead_letters_v1(bigint, text, text);
DROP FUNCTION IF EXISTS queen.list_traces_v1(bigint, bigint, uuid, text, int, int);
DROP FUNCTION IF EXISTS queen.list_trace_names_v1(int, int);
DROP FUNCTION IF EXISTS queen.count_traces_v1(text);
DROP FUNCTION IF EXISTS queen.delete_queue_v1(text);
DROP FUNCTION IF EXISTS queen.delete_group_v1(text, text, bool);
DROP FUNCTION IF EXISTS queen.update_subscription_v1(text, text, timestamptz);
DROP FUNCTION IF EXISTS queen.configure_queue_v1(
    text, text, text, int, int, int, int, int, int, bool, bool, bool, int, int, int, int, int, bool);
DROP FUNCTION IF EXISTS queen.judge_anew(bigint);
DROP FUNCTION IF EXISTS queen.subscribe_v1(text, text, text, timestamptz, bool, bool, int);
DROP FUNCTION IF EXISTS queen.has_group_v1(text);
DROP FUNCTION IF EXISTS queen.make_cursors(bigint, int);
DROP FUNCTION IF EXISTS queen.skip_to(bigint, timestamptz);
DROP FUNCTION IF EXISTS queen.begin_group(bigint);
DROP FUNCTION IF EXISTS queen.put_cursors(bigint, bigint[], bool, timestamptz);
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

-- A group gets its cursors in pages, partition by partition of its queue in the order of their ids. + 0: see 0012;
-- and a partition is looked up by its name in the other index, never here among all of its queue.
CREATE INDEX partitions_queue ON queen.partitions ((queue_id + 0), (id + 0));
ALTER TABLE queen.consumer_groups_metadata ADD COLUMN begins bool NOT NULL DEFAULT false;
COMMENT ON COLUMN queen.consumer_groups_metadata.begins IS
'Its starts_at has come, and cursors that it had before are being moved there: those of partitions up to subscribed_upto are.';
COMMENT ON COLUMN queen.consumer_groups_metadata.subscribed_upto IS
'Cursors exist for all partitions up to this id; 2^63 - 1 when the group has them all; -1 while it is being deleted.';

CREATE INDEX consumer_groups_metadata_deleted ON queen.consumer_groups_metadata (id) WHERE subscribed_upto < 0;
COMMENT ON INDEX queen.consumer_groups_metadata_deleted IS 'For the clean-up: groups whose deletion has begun.';

-- What configure has still to do in the partitions of a queue that has many of them. A row of its own each time, which nobody
-- waits for but who does its pages.
CREATE TABLE queen.pending_configurations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    pushes bool NOT NULL,
    limits bool NOT NULL,
    waits bool NOT NULL,
    done_upto bigint NOT NULL DEFAULT 0
);
CREATE INDEX pending_configurations_queue ON queen.pending_configurations (queue_id, id);
COMMENT ON TABLE queen.pending_configurations IS
'Changes of the options of queues that have not come to all their partitions yet: done are those up to done_upto, by id.';
COMMENT ON COLUMN queen.pending_configurations.pushes IS 'Pushes that were laid out under the old options are waited for.';
COMMENT ON COLUMN queen.pending_configurations.limits IS 'A maximum size where there was none: it holds when the last of them is stored.';
COMMENT ON COLUMN queen.pending_configurations.waits IS 'Cursors that wait as the old options said are made ready.';

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
