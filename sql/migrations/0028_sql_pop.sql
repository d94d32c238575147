-- Pops and acks of SQL are part of a transaction of their caller (ADR 59). What has to be done at its commit, a deferred
-- trigger does, one row per cursor: with the time of the commit, and with locks that are had for the commit only.
CREATE UNLOGGED TABLE queen.open_cursors (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    part_id bigint NOT NULL,
    grp_id bigint NOT NULL,
    seconds int,
    held bool NOT NULL,
    PRIMARY KEY (xid, part_id, grp_id)
);
COMMENT ON TABLE queen.open_cursors IS
'The cursors that a transaction with pops or acks of SQL has seen, until it commits. Nobody else ever sees a row.';
COMMENT ON COLUMN queen.open_cursors.seconds IS 'The length of the lease that the transaction has given; NULL: none.';
COMMENT ON COLUMN queen.open_cursors.held IS 'Whether the transaction has changed the cursor, and so holds it. Else it had nothing to deliver.';

-- Its body is made with the other procedures.
CREATE FUNCTION queen.settle_cursor() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER settle_cursor AFTER INSERT ON queen.open_cursors
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION queen.settle_cursor();

CREATE TYPE queen.popped AS (
    message_id uuid,
    transaction_id text,
    partition text,
    off bigint,
    payload jsonb,
    created_at timestamptz,
    delivery_attempt int,
    lease_id uuid,
    trace_id text,
    producer_sub text
);
COMMENT ON TYPE queen.popped IS 'A message that queen.pop returns.';

-- It has one argument more.
DROP FUNCTION IF EXISTS queen.ack_cursor(
    bigint, bigint, bigint, timestamptz, bool, int[], uuid[], text[], bigint[], bigint[], text[]);
