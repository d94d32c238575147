-- Who is connected, and how far groups were behind.
CREATE UNLOGGED TABLE queen.connected_consumers (
    worker text NOT NULL,
    n int NOT NULL,
    queue text COLLATE "C" NOT NULL,
    namespace text,
    task text,
    consumer_group text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    address text NOT NULL,
    since timestamptz NOT NULL,
    in_flight int,
    until timestamptz NOT NULL,
    PRIMARY KEY (worker, n)
);
CREATE INDEX connected_consumers_group ON queen.connected_consumers (consumer_group);
CREATE INDEX connected_consumers_until ON queen.connected_consumers (until);
COMMENT ON TABLE queen.connected_consumers IS
'Long polls and WebSockets of each worker, as it last reported them; not logged, because it is out of date after seconds.';
COMMENT ON COLUMN queen.connected_consumers.queue IS 'Empty for a consumer of a namespace or task.';
COMMENT ON COLUMN queen.connected_consumers.in_flight IS 'Messages of a WebSocket that are not acknowledged; NULL for a long poll.';
COMMENT ON COLUMN queen.connected_consumers.until IS 'The worker reports again before this time, or has died.';

CREATE TABLE queen.group_metrics (
    grp_id bigint NOT NULL,
    bucket timestamptz NOT NULL,
    lag bigint NOT NULL,
    oldest_s float8 NOT NULL,
    PRIMARY KEY (grp_id, bucket)
);
CREATE INDEX group_metrics_bucket ON queen.group_metrics (bucket);
COMMENT ON TABLE queen.group_metrics IS
'The largest lag of each group by minute, and the longest wait, as the statistics found them; no row: no lag. Removed by age only.';
