-- Streams: registered queries, what they remember of each partition, and their last cycles.

CREATE TABLE queen.streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    source_queue text NOT NULL,
    sink_queue text,
    config_hash text NOT NULL,
    created_at timestamptz NOT NULL,
    registered_at timestamptz NOT NULL
);
COMMENT ON TABLE queen.streams IS
'Registered stream queries. Their workers pop the source queue as a consumer group and commit with queen.cycle_stream_v1.';
COMMENT ON COLUMN queen.streams.config_hash IS
'Stands for the chain of operators: another one would misread the state, so it may register only with a reset.';

CREATE TABLE queen.stream_state (
    part_id bigint NOT NULL,
    stream_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value json NOT NULL,
    window_end float8,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (part_id, stream_id, key)
);
COMMENT ON TABLE queen.stream_state IS
'What a stream remembers of a partition of its source queue, by keys of its own choice.';
COMMENT ON COLUMN queen.stream_state.window_end IS
'The number value.windowEnd, if there is one: milliseconds since 1970 at which the window of this row is over.';

CREATE TABLE queen.stream_cycles (
    part_id bigint NOT NULL,
    stream_id bigint NOT NULL,
    grp_id bigint,
    flush uuid,
    cycled_at timestamptz NOT NULL,
    PRIMARY KEY (part_id, stream_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE queen.stream_cycles IS
'The last cycle of each stream and partition. Its row is the lock by which cycles of the two follow one another.';
COMMENT ON COLUMN queen.stream_cycles.grp_id IS 'The consumer group of the cycle; NULL when it had none.';
COMMENT ON COLUMN queen.stream_cycles.flush IS
'Id of the call that made the cycle: how a retry after an unknown commit finds out that it had succeeded.';
