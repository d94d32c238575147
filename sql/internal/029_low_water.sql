-- Plans: ADR 38 says why part_id + 0.

-- Where the scan for ready cursors of a group begins. While some transaction holds a snapshot, the index keeps an entry
-- for each time at which a cursor was ready once, and a scan from the oldest would visit them all (ADR 45). So there is
-- per group a time below which no cursor is ready: the low-water mark. A worker remembers it and gives it to each pop,
-- which returns it when it has risen. Within a call, and for callers that have no mark to give, a setting of the
-- session holds it.
--
-- The mark may rise to a time only when no transaction can still commit a cursor with an earlier time. A call that
-- writes ready_at takes its time from queen.write_clock, which holds a shared advisory lock on the tick of that time, 4
-- ms, until the commit. A tick that is over and not locked is closed.

-- The tick of a time, as the key of an advisory lock. STABLE, as date_part is: else it would not be inlined, and be
-- planned at each call.
CREATE OR REPLACE FUNCTION queen.tick(p_time timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN 7565000000000000 + floor(date_part('epoch', p_time) * 250)::bigint;
COMMENT ON FUNCTION queen.tick IS 'Internal: the key of the advisory lock of a tick, 4 ms.';

-- The time of a call that writes ready_at. If its tick was closed at that moment, the call takes the next one.
CREATE OR REPLACE FUNCTION queen.write_clock() RETURNS timestamptz
LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz;
BEGIN
    IF current_setting('queen.clock', true) <> '' THEN
        RETURN queen.clock();
    END IF;
    LOOP
        v_now := clock_timestamp();
        IF pg_try_advisory_xact_lock_shared(queen.tick(v_now)) AND queen.tick(clock_timestamp()) = queen.tick(v_now) THEN
            RETURN v_now;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.write_clock IS
'The time of a call that writes when cursors are ready: queen.clock(), noted until the commit, so that no low-water mark passes it.';

-- The time up to which every tick is closed, in seconds since 1970. The search goes on, tick by tick, from what this
-- session knew. If that is long ago, the view pg_locks names the first tick that is locked.
CREATE OR REPLACE FUNCTION queen.closed(p_now timestamptz) RETURNS float8
LANGUAGE plpgsql
AS $$
DECLARE
    v_end CONSTANT bigint := queen.tick(p_now);
    v_known CONSTANT bigint := coalesce(nullif(current_setting('queen.closed', true), '')::bigint, 0);
    v_first bigint := least(v_known, v_end);
BEGIN
    IF v_end - v_first > 50 THEN
        SELECT coalesce(min(k.key), v_end) INTO v_first
        FROM pg_locks AS l
        CROSS JOIN LATERAL (SELECT (l.classid::bigint << 32) | l.objid::bigint AS key) AS k
        WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND k.key BETWEEN queen.tick('1970-01-01Z') AND v_end;
    ELSE
        WHILE v_first < v_end AND pg_try_advisory_xact_lock(v_first) LOOP
            v_first := v_first + 1;
        END LOOP;
    END IF;
    IF v_first <> v_known THEN
        PERFORM set_config('queen.closed', v_first::text, false);
    END IF;
    RETURN (v_first - queen.tick('1970-01-01Z')) / 250.0;
END $$;
COMMENT ON FUNCTION queen.closed IS
    'Internal: the time up to which no running transaction writes ready times of cursors.';

-- The setting that has the mark of a group. There are 1000: every name of a setting takes memory for as long as the
-- session lives, and before PostgreSQL 16 a new one has all of them sorted. A mark contains the number of its group.
CREATE OR REPLACE FUNCTION queen.name_of_mark(p_grp bigint) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'queen.low_water_' || (p_grp % 1000)::text;
COMMENT ON FUNCTION queen.name_of_mark IS 'Internal: the name of the setting that holds the low-water mark of a group.';

-- Cursors that another transaction has locked for a second are passed over: a pop of SQL may hold them for long, and the
-- mark would stay below all that dies meanwhile. The mark has their partitions from its eleventh number on. Of
-- p_stored, a mark; oldest: where it would rise to, because the first cursor that is ready became so then.
CREATE OR REPLACE FUNCTION queen.pass_held(
    p_grp bigint, p_closed float8, p_now timestamptz, INOUT stored float8[], INOUT oldest timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now CONSTANT float8 := date_part('epoch', p_now);
    v_cursor record;
    v_first bool := true;
BEGIN
    FOR v_cursor IN
        SELECT c.part_id, c.ready_at FROM queen.partition_consumers AS c
        WHERE c.grp_id = p_grp AND c.ready_at >= oldest AND c.ready_at < to_timestamp(p_closed) AND c.ready_at < 'infinity'
        ORDER BY c.ready_at, c.part_id + 0 LIMIT 101
    LOOP
        IF v_cursor.ready_at > p_now - interval '1 s' OR cardinality(stored) >= 110
            OR NOT queen.is_cursor_locked(v_cursor.part_id, p_grp) THEN
            oldest := v_cursor.ready_at;
            stored[9] := 0;
            RETURN;
        ELSIF v_first AND stored[9] <> v_cursor.part_id THEN
            stored[9] := v_cursor.part_id;
            stored[10] := v_now;
        END IF;
        IF v_first AND v_now < stored[10] + 1 THEN
            RETURN;
        END IF;
        v_first := false;
        IF v_cursor.part_id <> ALL(stored[11:]) THEN
            stored := stored || v_cursor.part_id::float8;
        END IF;
    END LOOP;
    oldest := NULL;
END $$;
COMMENT ON FUNCTION queen.pass_held IS 'Internal: passes a low-water mark over cursors that are locked for long.';

-- The partitions whose cursors are passed over, and are ready below the mark still; the mark forgets the others.
CREATE OR REPLACE FUNCTION queen.passed_over(p_grp bigint) RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_name CONSTANT text := queen.name_of_mark(p_grp);
    v_stored float8[] := string_to_array(nullif(current_setting(v_name, true), ''), ' ')::float8[];
    v_kept bigint[];
BEGIN
    IF coalesce(v_stored[4] <> p_grp OR cardinality(v_stored) <= 10, true) THEN
        RETURN '{}';
    END IF;
    SELECT array_agg(u.part::bigint) INTO v_kept
    FROM unnest(v_stored[11:]) AS u (part)
    CROSS JOIN LATERAL (
        SELECT c.ready_at FROM queen.partition_consumers AS c
        WHERE c.part_id = u.part::bigint AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1
    ) AS c
    WHERE c.ready_at < to_timestamp(v_stored[1]);
    IF cardinality(v_kept) IS DISTINCT FROM cardinality(v_stored) - 10 THEN
        v_stored := v_stored[:10] || v_kept::float8[];
        PERFORM set_config(v_name, array_to_string(v_stored, ' '), false);
    END IF;
    RETURN coalesce(v_kept, '{}');
END $$;
COMMENT ON FUNCTION queen.passed_over IS 'Internal: partitions that the low-water mark of a group has passed over.';

-- Makes cursors that were passed over and are free, because the transaction that had locked them was rolled back, ready
-- from now on. p_now is of queen.write_clock.
CREATE OR REPLACE FUNCTION queen.take_back_passed(p_grp bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_part bigint;
    v_free bigint[];
BEGIN
    FOREACH v_part IN ARRAY queen.passed_over(p_grp) LOOP
        IF NOT queen.is_cursor_locked(v_part, p_grp) THEN
            v_free := v_free || v_part;
        END IF;
    END LOOP;
    IF v_free IS NOT NULL THEN
        -- They are locked now. What a transaction has changed meanwhile is ready later than the mark.
        FOREACH v_part IN ARRAY queen.passed_over(p_grp) LOOP
            UPDATE queen.partition_consumers AS c SET ready_at = p_now, ver = c.ver + 1
            WHERE v_part = ANY(v_free) AND c.part_id = v_part AND c.grp_id = p_grp AND c.ver = (
                SELECT l.ver FROM queen.partition_consumers AS l
                WHERE l.part_id = v_part AND l.grp_id = p_grp ORDER BY l.ver DESC LIMIT 1);
        END LOOP;
        PERFORM queen.passed_over(p_grp);
    END IF;
END $$;
COMMENT ON FUNCTION queen.take_back_passed IS 'Internal: makes free cursors that a low-water mark has passed over ready.';

-- The low-water mark of a group; none while it has not all its cursors, which are ready since it began, in whichever
-- page they are made, nor while the group is hidden: it may come back under its number. It rises at most once per tick,
-- and less often, up to 64 ms, while there is little to pass over. A sweep finds cursors that are below the mark in
-- spite of this: it searches times that go down from the mark and become longer, one per second, and less often if it
-- takes long. A mark of another PostgreSQL server, such as the primary before a failover, is ignored: the two may have
-- lost different commits.
CREATE OR REPLACE FUNCTION queen.low_water(p_grp bigint, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_name CONSTANT text := queen.name_of_mark(p_grp);
    -- In seconds since 1970: the mark, when it was looked for, and when the next step of the sweep is due. The group.
    -- Of the sweep: where it stands, and how long the next step is. After how long the mark is looked for again. And
    -- when the server was started, in milliseconds, as fractions may be rounded. Then those of queen.pass_held: the first
    -- partition that was found locked, since when, and what was passed over.
    v_stored float8[] := string_to_array(nullif(current_setting(v_name, true), ''), ' ')::float8[];
    v_now CONSTANT float8 := date_part('epoch', p_now);
    v_server CONSTANT float8 := floor(date_part('epoch', pg_postmaster_start_time()) * 1000);
    v_closed float8;
    v_oldest timestamptz;
    v_blocks bigint;
    v_began timestamptz;
    v_took float8;
BEGIN
    IF current_setting('queen.clock', true) <> '' THEN
        RETURN '-infinity';
    ELSIF coalesce(v_stored[4] <> p_grp OR v_stored[8] <> v_server OR v_now < v_stored[2] OR v_stored[10] < 0, true) THEN
        v_stored := ARRAY[0, v_now, v_now + 1, p_grp, 0, 1, 0.004, v_server, 0, 0];
    ELSIF v_now < v_stored[2] + v_stored[7] THEN
        RETURN to_timestamp(v_stored[1]);
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp AND g.subscribed_upto = 9223372036854775807
    ) THEN
        RETURN '-infinity';
    END IF;
    v_closed := queen.closed(p_now);
    v_blocks := pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass);
    -- A statement of its own, later than the closing: it sees what was committed by then.
    SELECT c.ready_at INTO v_oldest FROM queen.partition_consumers AS c
    WHERE c.grp_id = p_grp AND c.ready_at >= to_timestamp(v_stored[1]) AND c.ready_at < to_timestamp(v_closed)
        AND c.ready_at < 'infinity'
    ORDER BY c.ready_at, c.part_id + 0 LIMIT 1;
    IF v_oldest < p_now - interval '1 s' THEN
        SELECT h.stored, h.oldest INTO v_stored, v_oldest FROM queen.pass_held(p_grp, v_closed, p_now, v_stored, v_oldest) AS h;
    ELSE
        v_stored[9] := 0;
    END IF;
    -- A little less: it is stored as a fraction, of which extra_float_digits may leave 15 digits.
    v_stored[1] := greatest(v_stored[1], coalesce(date_part('epoch', v_oldest), v_closed) - 0.00001);
    v_stored[2] := v_now;
    v_blocks := pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass) - v_blocks;
    v_stored[7] := CASE WHEN v_blocks > 8 THEN 0.004 ELSE least(2 * v_stored[7], 0.064) END;
    IF v_now >= v_stored[3] THEN
        IF v_stored[5] <= 0 THEN
            v_stored[5] := v_stored[1];
            v_stored[6] := 1;
        END IF;
        v_began := clock_timestamp();
        SELECT c.ready_at INTO v_oldest FROM queen.partition_consumers AS c
        WHERE c.grp_id = p_grp AND c.ready_at >= to_timestamp(v_stored[5] - v_stored[6])
            AND c.ready_at < to_timestamp(v_stored[5]) AND c.ready_at < 'infinity'
            AND (cardinality(v_stored) = 10 OR c.part_id <> ALL(v_stored[11:]::bigint[]))
        ORDER BY c.ready_at, c.part_id + 0 LIMIT 1;
        v_took := extract(epoch FROM clock_timestamp() - v_began);
        v_stored[1] := least(v_stored[1], date_part('epoch', v_oldest) - 0.00001);
        v_stored[3] := v_now + greatest(1, least(60, 2000 * v_took));
        v_stored[5] := v_stored[5] - v_stored[6];
        v_stored[6] := v_stored[6] * CASE WHEN v_took < 0.0005 THEN 2 WHEN v_took > 0.002 THEN 0.5 ELSE 1 END;
    END IF;
    PERFORM set_config(v_name, array_to_string(v_stored, ' '), false);
    RETURN to_timestamp(v_stored[1]);
END $$;
COMMENT ON FUNCTION queen.low_water IS 'Internal: a time below which no cursor of a group is ready.';
