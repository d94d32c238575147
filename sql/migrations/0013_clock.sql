-- What is known of PostgreSQL's clock: when it was last looked at, and its steps (ADR 44).

CREATE TABLE queen.clock (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    looked_at timestamptz NOT NULL,
    boot text NOT NULL,
    began float8 NOT NULL,
    ended float8 NOT NULL,
    set_back float8 NOT NULL DEFAULT 0,
    repaired_part bigint,
    repaired_queue uuid,
    repaired_at timestamptz
);
COMMENT ON TABLE queen.clock IS
'One row at most: the last look of the leader of the services at PostgreSQL''s clock, and how far a repair after a step back is.';
COMMENT ON COLUMN queen.clock.looked_at IS 'What PostgreSQL''s clock showed, some time between began and ended.';
COMMENT ON COLUMN queen.clock.boot IS 'The boot of the leader''s machine, whose seconds since then began and ended are: other boots have other ones.';
COMMENT ON COLUMN queen.clock.set_back IS 'Seconds by which times that no setting explains are to be set back; 0 when none are.';
COMMENT ON COLUMN queen.clock.repaired_part IS 'Partitions up to this id are repaired; NULL when no repair is under way.';
COMMENT ON COLUMN queen.clock.repaired_queue IS 'simple-mq queues before this one are repaired, and of it what is visible up to repaired_at.';

CREATE TABLE queen.clock_steps (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    seconds float8 NOT NULL,
    measured bool NOT NULL,
    distrusted float8 NOT NULL
);
COMMENT ON TABLE queen.clock_steps IS
'Steps of PostgreSQL''s clock that nobody has accepted (queen doctor --accept-clock); at most 100.';
COMMENT ON COLUMN queen.clock_steps.at IS 'What the clock showed when the step had been noticed; later steps back lower it.';
COMMENT ON COLUMN queen.clock_steps.seconds IS 'By how much, forward; negative: back.';
COMMENT ON COLUMN queen.clock_steps.measured IS
'Whether it was seen against a clock that does not step. Else nobody looked for so long, and that much time may have passed or not.';
COMMENT ON COLUMN queen.clock_steps.distrusted IS
'Seconds by which what was stored before is taken to be younger than the clock says; what later steps back have taken away is off.';

-- Their arguments have changed; the new ones are made at every start.
DROP FUNCTION IF EXISTS queen.find_expired_v1(bigint, text, int);
DROP FUNCTION IF EXISTS queen.expired(bigint, queen.queues, bigint, int, timestamptz);
DROP FUNCTION IF EXISTS queen.remove_expired_v1(bigint, bigint[], bigint[], int, bool);
DROP FUNCTION IF EXISTS queen.find_overdue_v1(bigint, text, int);
DROP FUNCTION IF EXISTS queen.evict_overdue_v1(bigint, bigint[], int, bool);
DROP FUNCTION IF EXISTS queen.find_idle_partitions_v1(bigint, text, int, interval);
DROP FUNCTION IF EXISTS queen.is_idle(bigint, interval);
DROP FUNCTION IF EXISTS queen.remove_idle_partitions_v1(bigint, bigint[], interval);
DROP FUNCTION IF EXISTS queen.forget_fenced_flushes_v1();
DROP FUNCTION IF EXISTS simple_mq.tidy_v1();
