-- Messages that queen.push has written in a transaction of its caller. A worker moves them into the log (ADR 54).
CREATE TABLE queen.outbox (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    queue_id bigint NOT NULL,
    partition text COLLATE "C" NOT NULL,
    transaction_id text,
    payload text NOT NULL,
    pushed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (xid, seq)
);
COMMENT ON TABLE queen.outbox IS
'Messages that queen.push has written and that are not in the log yet, in the order of their transactions.';

CREATE TABLE queen.outbox_position (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    moves bigint NOT NULL DEFAULT 0,
    seen pg_snapshot,
    target pg_snapshot,
    last_xid xid8,
    last_seq bigint,
    CHECK ((target IS NULL) = (last_xid IS NULL) AND (target IS NULL) = (last_seq IS NULL))
);
COMMENT ON TABLE queen.outbox_position IS
'One row. What is visible in the snapshot seen is in the log (NULL: look at all rows), and, if there is a target, what is visible in that up to the last row.';
INSERT INTO queen.outbox_position DEFAULT VALUES;
