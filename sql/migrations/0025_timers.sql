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

-- Cron schedules. At each of their times a timer is made that is due.
CREATE TABLE queen.schedules (
    queue_id bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    cron text NOT NULL,
    time_zone text NOT NULL,
    catch_up int NOT NULL,
    partition text COLLATE "C" NOT NULL,
    message text NOT NULL,
    last_at timestamptz NOT NULL,
    next_at timestamptz NOT NULL,
    PRIMARY KEY (queue_id, name)
);
CREATE INDEX schedules_next_at ON queen.schedules (next_at);
COMMENT ON TABLE queen.schedules IS 'Cron schedules of queues.';
COMMENT ON COLUMN queen.schedules.catch_up IS 'How many of the times that were missed are made up for: the last ones.';
COMMENT ON COLUMN queen.schedules.message IS 'The JSON object of each message, as in queen.segments, without its transaction id.';
COMMENT ON COLUMN queen.schedules.last_at IS 'The times up to this one are done.';
COMMENT ON COLUMN queen.schedules.next_at IS 'When it is looked at next.';

-- They have another argument now.
DROP FUNCTION IF EXISTS queen.push(text, jsonb, text, text);
DROP FUNCTION IF EXISTS queen.push_many(text, jsonb[], text[], text[]);
