-- The conditions under which a worker of a stream may close windows: it pushes what it has read of the state, and
-- deletes that, without an ack that would prove that the partition is its own.

-- True if a cursor has a live lease: its worker may have read the state already and be about to write it.
CREATE OR REPLACE FUNCTION queen.is_leased(p_part bigint, p_grp bigint, p_now timestamptz) RETURNS bool
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN coalesce((
        SELECT c.lease IS NOT NULL AND c.ready_at > p_now AND c.ready_at < 'infinity'
        FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1
    ), false);
END $$;
COMMENT ON FUNCTION queen.is_leased IS 'Internal: whether a cursor has a live lease.';

-- True if a row of the state may have changed since the worker that closes its window has read it. The worker reads a
-- window after its end. So a row that last changed before that end is unchanged. A row that changed later counts as
-- settled after a second, which is much longer than a worker takes from reading to committing.
CREATE OR REPLACE FUNCTION queen.is_unsettled(
    p_updated_at timestamptz, p_window_end float8, p_now timestamptz
) RETURNS bool
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_updated_at > p_now - interval '1 second'
    AND (p_window_end IS NULL OR extract(EPOCH FROM p_updated_at) * 1000 >= p_window_end);
COMMENT ON FUNCTION queen.is_unsettled IS
    'Internal: whether a row may have changed since it was read for a window close.';

-- Takes the locks of a cycle, in the order that queen.cycle_stream_v1 names. Returns why there can be no cycle, or
-- null.
CREATE OR REPLACE FUNCTION queen.lock_cycle(
    p_stream bigint, p_source bigint, p_grp bigint, p_part bigint[], p_limited bigint[]
) RETURNS text
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_queues(p_limited);
    END IF;
    PERFORM queen.lock_append(p_part, p_limited, ARRAY[p_source], ARRAY[p_grp]);
    PERFORM 1 FROM queen.streams AS s WHERE s.id = p_stream FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'Unknown query_id: register the query first';
    END IF;
    PERFORM 1 FROM queen.partitions AS p WHERE p.id = p_source FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'Partition not found';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.lock_cycle IS
    'Internal: locks what a cycle of a stream writes; the reason why there is no such stream or partition.';

-- The ack of a cycle: see the arguments p_ack_ and the row ack of queen.cycle_stream_v1. The caller holds the cursor.
CREATE OR REPLACE FUNCTION queen.ack_input(
    p_source bigint, p_grp bigint, p_ack_kind text, p_ack_lease uuid, p_ack_off bigint, p_ack_hash uuid,
    p_ack_error text, p_release bool, p_now timestamptz,
    OUT problem text, OUT completed bigint, OUT released bool, OUT dead bool, OUT ready bool
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_row record;
    v_acked bigint;
    v_off bigint;
BEGIN
    SELECT c.acked INTO v_acked FROM queen.partition_consumers AS c
    WHERE c.part_id = p_source AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    v_off := coalesce(p_ack_off, (
        SELECT t.off FROM queen.transaction_ids AS t WHERE t.part_id = p_source AND t.hash = p_ack_hash
    ));
    FOR v_row IN
        SELECT * FROM queen.ack_messages_v1(
            ARRAY[p_source], ARRAY[p_grp], ARRAY[p_ack_lease], ARRAY[p_ack_kind],
            ARRAY[CASE WHEN p_ack_kind = 'c' AND v_off > v_acked THEN v_acked + 1 ELSE v_off END], ARRAY[v_off],
            ARRAY[p_ack_hash], ARRAY[p_ack_error], p_ack_kind <> 'c')
    LOOP
        problem := CASE
            -- It ends a run in which other messages may not be done: its own outcome comes first.
            WHEN v_off <= v_row.done_upto OR v_off = ANY(v_row.also_done) THEN 'Message already completed'
            WHEN v_row.problem IS NOT NULL THEN v_row.problem
            WHEN v_off > v_row.within THEN 'Message not delivered under this lease'
        END;
        completed := CASE WHEN p_ack_kind = 'c'
            THEN v_off - v_acked - coalesce(cardinality(v_row.also_done), 0) ELSE 0 END;
        released := v_row.released;
        dead := v_row.dead;
        ready := v_row.ready;
    END LOOP;
    IF problem IS NULL AND p_release AND NOT released THEN
        UPDATE queen.partition_consumers AS c SET lease = NULL, ready_at = p_now, ver = c.ver + 1
        WHERE c.part_id = p_source AND c.grp_id = p_grp AND c.ver = (
            SELECT l.ver FROM (
                SELECT n.ver, n.lease, n.ready_at FROM queen.partition_consumers AS n
                WHERE n.part_id = p_source AND n.grp_id = p_grp ORDER BY n.ver DESC LIMIT 1) AS l
            WHERE l.lease = p_ack_lease AND l.ready_at > p_now);
        released := FOUND;
        ready := FOUND;
    END IF;
END $$;
COMMENT ON FUNCTION queen.ack_input IS 'Internal: acknowledges the input of a cycle of a stream.';

-- Writes the state of a cycle; a key whose value is null is deleted.
CREATE OR REPLACE FUNCTION queen.write_stream_state(
    p_stream bigint, p_source bigint, p_key text[], p_value text[], p_window_end float8[], p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.stream_state AS s USING unnest(p_key, p_value) AS u (key, value)
    WHERE s.part_id = p_source AND s.stream_id = p_stream AND s.key = u.key AND u.value IS NULL;
    INSERT INTO queen.stream_state AS s (part_id, stream_id, key, value, window_end, updated_at)
    SELECT p_source, p_stream, u.key, u.value::json, u.window_end, p_now
    FROM unnest(p_key, p_value, p_window_end) AS u (key, value, window_end) WHERE u.value IS NOT NULL
    ON CONFLICT (part_id, stream_id, key) DO UPDATE
    SET value = excluded.value, window_end = excluded.window_end, updated_at = excluded.updated_at;
END $$;
COMMENT ON FUNCTION queen.write_stream_state IS 'Internal: writes and deletes keys of the state of a stream.';

-- Why a window close, a cycle without an ack that deletes state and pushes what it made of it, may be wrong: it does
-- nothing then. The caller holds the lock of cycles.
CREATE OR REPLACE FUNCTION queen.flush_problem(
    p_stream bigint, p_source bigint, p_grp bigint, p_key text[], p_value text[], p_now timestamptz
) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_found bigint;
    v_unsettled bool;
BEGIN
    IF queen.is_leased(p_source, p_grp, p_now) THEN
        RETURN 'The partition is leased, and its consumer may have read this state already. Try again later';
    END IF;
    SELECT count(*), bool_or(queen.is_unsettled(s.updated_at, s.window_end, p_now)) INTO v_found, v_unsettled
    FROM unnest(p_key, p_value) AS u (key, value)
    JOIN queen.stream_state AS s ON s.part_id = p_source AND s.stream_id = p_stream AND s.key = u.key
    WHERE u.value IS NULL;
    IF v_found < cardinality(array_positions(p_value, NULL)) THEN
        RETURN 'State not found: the window has been closed already';
    ELSIF v_unsettled THEN
        RETURN 'The state changed a moment ago. Read it again before you close the window';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.flush_problem IS 'Internal: the reason why a window close does nothing.';
