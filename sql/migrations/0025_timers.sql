-- Messages that enter the log at a time. The worker that moves the outbox moves those that are due (ADR 55).
CREATE TABLE queen.timers (
    deliver_at timestamptz NOT NULL CHECK (isfinite(deliver_at)),
    seq bigint GENERATED ALWAYS AS IDENTITY,
    queue_id bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    transaction_id text NOT NULL,
    asked_at timestamptz,
    message text NOT NULL,
    PRIMARY KEY (deliver_at, seq),
    UNIQUE (queue_id, key)
);
COMMENT ON TABLE queen.timers IS
'Messages that are not in the log yet, because their time has not come. A queue has one timer per key.';
COMMENT ON COLUMN queen.timers.seq IS 'The order of timers with the same time; a timer that is changed gets a new one.';
COMMENT ON COLUMN queen.timers.asked_at IS 'When a timer was accepted whose client gave a delay; NULL: it gave a time.';
COMMENT ON COLUMN queen.timers.message IS 'The JSON object of the message, as in queen.segments.';
