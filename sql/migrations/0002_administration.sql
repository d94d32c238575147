-- What listings, inspection and administration need: deleted messages, retired groups, traces, statistics, metrics.

CREATE TABLE queen.deleted_messages (
    part_id bigint PRIMARY KEY,
    offsets int8multirange NOT NULL
);
COMMENT ON TABLE queen.deleted_messages IS
'Offsets whose message somebody deleted. Their segment keeps the place with a payload of null, so offsets stay dense; every cursor has them in acked or ahead.';

CREATE TABLE queen.retired_groups (
    queue_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    id bigint NOT NULL,
    PRIMARY KEY (queue_id, name)
);
COMMENT ON TABLE queen.retired_groups IS
'Numbers of deleted consumer groups: a group that comes again gets its number again, which workers may still remember.';

CREATE INDEX dead_letter_queue_failed_at ON queen.dead_letter_queue (failed_at DESC, id DESC);

CREATE INDEX segments_created_at ON queen.segments USING brin (created_at)
WITH (pages_per_range = 32, autosummarize = on);
COMMENT ON INDEX queen.segments_created_at IS 'For listings of a time that has passed; costs a push next to nothing.';

CREATE TABLE queen.traces (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL,
    part_id bigint NOT NULL,
    off bigint NOT NULL,
    consumer_group text NOT NULL,
    event_type text NOT NULL,
    data json NOT NULL,
    worker text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE INDEX traces_message ON queen.traces (part_id, off, id);
CREATE INDEX traces_queue ON queen.traces (queue_id);
COMMENT ON TABLE queen.traces IS 'What consumers recorded about messages on their way.';

CREATE TABLE queen.trace_names (
    name text COLLATE "C" NOT NULL,
    trace_id bigint NOT NULL REFERENCES queen.traces ON DELETE CASCADE,
    PRIMARY KEY (name, trace_id)
);
CREATE INDEX trace_names_trace ON queen.trace_names (trace_id);
COMMENT ON TABLE queen.trace_names IS 'The names under which a trace is found, over all messages.';

CREATE TABLE queen.queue_stats (
    queue_id bigint PRIMARY KEY,
    partitions bigint NOT NULL,
    total bigint NOT NULL,
    pending bigint NOT NULL,
    processing bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    dead_letter bigint NOT NULL,
    offset_lag bigint NOT NULL,
    oldest_at timestamptz,
    computed_at timestamptz NOT NULL
);
COMMENT ON TABLE queen.queue_stats IS
'Figures of each queue as of computed_at. Where groups differ, a partition counts as far as its slowest group is.';
COMMENT ON COLUMN queen.queue_stats.offset_lag IS 'Undone messages of the partition and group that has most of them.';
COMMENT ON COLUMN queen.queue_stats.oldest_at IS 'When the oldest message was pushed that some group has not done; NULL when there is none.';

CREATE TABLE queen.group_stats (
    grp_id bigint PRIMARY KEY,
    queue_id bigint NOT NULL,
    members bigint NOT NULL,
    partitions_with_lag bigint NOT NULL,
    total_lag bigint NOT NULL,
    leases bigint NOT NULL,
    leased_messages bigint NOT NULL,
    consumed bigint NOT NULL,
    untouched bool NOT NULL,
    oldest_at timestamptz,
    slowest bigint[] NOT NULL,
    computed_at timestamptz NOT NULL
);
CREATE INDEX group_stats_queue ON queen.group_stats (queue_id);
COMMENT ON TABLE queen.group_stats IS 'Figures of each consumer group as of computed_at.';
COMMENT ON COLUMN queen.group_stats.untouched IS 'Nothing of what waits was ever delivered to the group.';
COMMENT ON COLUMN queen.group_stats.slowest IS 'The partitions whose oldest undone message waits longest, worst first; at most 1000.';

CREATE TABLE queen.queue_metrics (
    bucket timestamptz NOT NULL,
    queue text COLLATE "C" NOT NULL,
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
    PRIMARY KEY (bucket, queue, worker)
);
COMMENT ON TABLE queen.queue_metrics IS 'What each worker did for each queue, by minute; the lag of a message is its age when it was popped.';
COMMENT ON COLUMN queen.queue_metrics.parked IS 'Most long polls of the queue that waited at once.';

CREATE TABLE queen.worker_metrics (
    bucket timestamptz NOT NULL,
    worker text NOT NULL,
    hostname text NOT NULL,
    worker_id int NOT NULL,
    samples int NOT NULL,
    jobs bigint NOT NULL,
    db_errors bigint NOT NULL,
    loop_lag_ms_sum float8 NOT NULL,
    loop_lag_ms_max float8 NOT NULL,
    cpu_user_ms float8 NOT NULL,
    cpu_system_ms float8 NOT NULL,
    rss_bytes bigint NOT NULL,
    virtual_bytes bigint NOT NULL,
    pool_size int NOT NULL,
    pool_idle int NOT NULL,
    queued int NOT NULL,
    waiting int NOT NULL,
    last_seen timestamptz NOT NULL,
    PRIMARY KEY (bucket, worker)
);
COMMENT ON TABLE queen.worker_metrics IS 'Each worker process by minute: sums and largest values of its samples, and the last of the rest.';

CREATE TABLE queen.retention_metrics (
    bucket timestamptz NOT NULL,
    queue text COLLATE "C" NOT NULL,
    retention_messages bigint NOT NULL,
    completed_retention_messages bigint NOT NULL,
    eviction_messages bigint NOT NULL,
    events bigint NOT NULL,
    PRIMARY KEY (bucket, queue)
);
COMMENT ON TABLE queen.retention_metrics IS 'What retention and eviction removed from each queue, by minute.';
