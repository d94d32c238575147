-- What is known of the size of limited queues, so that a push does not count their partitions each time.

CREATE TABLE queen.queue_sizes (
    queue_id bigint NOT NULL,
    ver bigint NOT NULL DEFAULT 0,
    most bigint,
    pushed bigint NOT NULL DEFAULT 0,
    resets bigint NOT NULL DEFAULT 0,
    asked_at timestamptz,
    PRIMARY KEY (queue_id, ver)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX queue_sizes_asked ON queen.queue_sizes (asked_at) WHERE asked_at IS NOT NULL;
COMMENT ON TABLE queen.queue_sizes IS
'One row per queue that has, or had, a maximum size. Every update raises ver, so a look-up that begins at the highest finds the live version first.';
COMMENT ON COLUMN queen.queue_sizes.most IS
'No more messages are to be completed by some group; NULL: not known. Pushes raise it, a count lowers it, acks leave it as it is.';
COMMENT ON COLUMN queen.queue_sizes.pushed IS 'Messages that pushes have added to most so far: what a count that began before them has to add.';
COMMENT ON COLUMN queen.queue_sizes.resets IS 'How often something else than a push made the backlog larger: a count that began before is void.';
COMMENT ON COLUMN queen.queue_sizes.asked_at IS 'Since when a push would have needed a count that was too large for it.';
INSERT INTO queen.queue_sizes (queue_id) SELECT q.id FROM queen.queues AS q WHERE q.max_size > 0;

DROP FUNCTION IF EXISTS queen.backlog(bigint);
DROP FUNCTION IF EXISTS queen.find_full(bigint[], bigint[], int[]);
-- Another argument.
DROP FUNCTION IF EXISTS queen.read_stream_state_v1(bigint, bigint, text[], text, float8);
