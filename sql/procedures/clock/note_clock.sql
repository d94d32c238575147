-- Purpose:   compares a reading of the clock with the one before, and stores it. Only the leader of the background
--            services may do this, so that readings follow one another.
-- Arguments: p_boot, p_began, p_ended  the boot of the caller's machine, and seconds since then before and after the look
--            p_at   what queen.clock() showed
-- Returns:   step: the seconds of a step, negative if back, 0 if there was none, null if the caller does not lead;
--            repairs: whether times are to be repaired.
-- Locks, writes: clock; clock_steps, and queue_sizes, after a step.
CREATE OR REPLACE FUNCTION queen.note_clock_v1(
    p_holder uuid, p_boot text, p_began float8, p_ended float8, p_at timestamptz, OUT step float8, OUT repairs bool
)
LANGUAGE plpgsql
AS $$
DECLARE
    v_last queen.clock;
    v_measured bool;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM queen.service_leader AS l WHERE l.holder = p_holder) THEN
        RETURN;
    END IF;
    INSERT INTO queen.clock (looked_at, boot, began, ended) VALUES (p_at, p_boot, p_began, p_ended) ON CONFLICT DO NOTHING;
    SELECT * INTO v_last FROM queen.clock AS c FOR UPDATE;
    v_measured := v_last.boot = p_boot AND p_began >= v_last.began;
    step := queen.clock_step(
        extract(EPOCH FROM p_at - v_last.looked_at)::float8,
        CASE WHEN v_measured THEN greatest(p_began - v_last.ended, 0) ELSE 0 END,
        -- The time since then was not measured. A minute may pass while one leader follows another.
        CASE WHEN v_measured THEN p_ended - v_last.began ELSE 60 END, v_measured);
    IF step > 0 THEN
        INSERT INTO queen.clock_steps (at, seconds, measured, distrusted) VALUES (p_at, step, v_measured, step);
        PERFORM queen.join_oldest_steps();
        -- A group that has not all its cursors begins earlier now (queen.start_of).
        PERFORM queen.forget_size(o.id) FROM (
            SELECT q.id FROM queen.queues AS q WHERE q.max_size > 0 AND q.max_wait_time_seconds > 0 ORDER BY q.id
        ) AS o;
    ELSIF step < 0 THEN
        PERFORM queen.step_back(-step, p_at, v_measured);
    END IF;
    UPDATE queen.clock AS c SET looked_at = p_at, boot = p_boot, began = p_began, ended = p_ended
    RETURNING c.repaired_part IS NOT NULL INTO repairs;
END $$;
COMMENT ON FUNCTION queen.note_clock_v1 IS
    'Compares PostgreSQL''s clock with that of the leader, and stores a step if there was one.';

-- By how much a clock has stepped that went on by p_passed seconds while p_least to p_most passed. 0 below half a
-- second and a thousandth, by which slewed clocks may differ. Time that was not measured counts as a step, all of it.
CREATE OR REPLACE FUNCTION queen.clock_step(p_passed float8, p_least float8, p_most float8, p_measured bool)
RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN p_passed BETWEEN p_least - 0.5 - p_least / 1000 AND p_most + 0.5 + p_most / 1000 THEN 0
    WHEN p_measured THEN p_passed - (p_least + p_most) / 2
    ELSE p_passed
END;
COMMENT ON FUNCTION queen.clock_step IS 'Internal: the size of a step of the clock.';

-- The clock has stepped back: this undoes earlier steps forward, newest first, and begins a repair.
CREATE OR REPLACE FUNCTION queen.step_back(p_seconds float8, p_at timestamptz, p_measured bool) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    UPDATE queen.clock_steps AS s
    SET at = least(s.at, p_at), distrusted = greatest(0, s.distrusted - greatest(0, p_seconds - u.newer))
    FROM (
        SELECT n.id, sum(n.distrusted) OVER (ORDER BY n.id DESC) - n.distrusted AS newer FROM queen.clock_steps AS n
    ) AS u
    WHERE s.id = u.id;
    INSERT INTO queen.clock_steps (at, seconds, measured, distrusted) VALUES (p_at, -p_seconds, p_measured, 0);
    PERFORM queen.join_oldest_steps();
    UPDATE queen.clock AS c
    SET set_back = c.set_back + p_seconds, repaired_part = 0, repaired_queue = NULL, repaired_at = NULL;
END $$;
COMMENT ON FUNCTION queen.step_back IS 'Internal: handles a step back of the clock.';

-- Keeps at most 100 steps: beyond that the two oldest become one, which is distrusted as much as both.
CREATE OR REPLACE FUNCTION queen.join_oldest_steps() RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_ids bigint[] := ARRAY(SELECT s.id FROM queen.clock_steps AS s ORDER BY s.id);
BEGIN
    IF cardinality(v_ids) > 100 THEN
        UPDATE queen.clock_steps AS s SET distrusted = s.distrusted + o.distrusted
        FROM queen.clock_steps AS o WHERE s.id = v_ids[2] AND o.id = v_ids[1];
        DELETE FROM queen.clock_steps AS s WHERE s.id = v_ids[1];
    END IF;
END $$;
COMMENT ON FUNCTION queen.join_oldest_steps IS 'Internal: merges the oldest steps of the clock, so that there are few.';
