-- Purpose:   a cycle of a stream: acks its input, writes its state and pushes its outputs, all or none.
-- Arguments: p_stream, p_source: the partition of the input, p_grp: the group that reads it (null: there is none)
--            those of push_messages_v1
--            p_key, p_value, p_window_end   one element a key of the state, keys distinct: value null deletes it
--            p_ack_kind  c: everything up to the message is completed; f or d: the message is a dead letter; null: no ack
--            p_ack_off, or p_ack_hash of the transaction id (queen.transaction_hash): the message
--            p_release   whether the lease ends although something under it is not done
-- Returns:   a row a pushed segment (kind push: part_id, first_off, created_at, dup_pos, dup_off) and one of kind ack
--            (completed: how many messages; released, dead, ready). A row of kind undone says with problem, or by a push without
--            first_off or by no push at all, that something failed and that nothing was stored.
-- Locks:     rows of limited queues in id order; partitions in part_id order; the sizes of these queues; cursors in (part_id, grp_id) order;
--            then the stream, the partition, the cycle's row.
-- Writes:    what push_messages_v1 and ack_messages_v1 write; stream_state, stream_cycles.
CREATE OR REPLACE FUNCTION queen.cycle_stream_v1(
    p_stream bigint, p_source bigint, p_grp bigint,
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[],
    p_key text[], p_value text[], p_window_end float8[],
    p_ack_kind text, p_ack_lease uuid, p_ack_off bigint, p_ack_hash uuid, p_ack_error text, p_release bool,
    p_version bigint, p_limited bigint[]
) RETURNS TABLE (
    kind text, part_id bigint, problem text, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[],
    completed bigint, released bool, dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
    v_last_flush uuid;
    v_row record;
    v_acked bigint;
    v_off bigint;
    v_problem text;
    v_undone bool := false;
    v_full bool := false;
BEGIN
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_queues(p_limited);
    END IF;
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    PERFORM queen.lock_sizes(p_limited);
    PERFORM queen.lock_cursors(p_part, ARRAY[p_source], ARRAY[p_grp]);
    PERFORM 1 FROM queen.streams AS s WHERE s.id = p_stream FOR KEY SHARE;
    IF NOT FOUND THEN
        v_problem := 'Unknown query_id: register the query first';
    ELSE
        PERFORM 1 FROM queen.partitions AS p WHERE p.id = p_source FOR KEY SHARE;
        IF NOT FOUND THEN
            v_problem := 'Partition not found';
        END IF;
    END IF;
    IF v_problem IS NOT NULL THEN
        RETURN QUERY SELECT 'undone', NULL::bigint, v_problem, NULL::bigint, NULL::timestamptz, NULL::int[],
            NULL::bigint[], NULL::bigint, NULL::bool, NULL::bool, NULL::bool;
        RETURN;
    END IF;
    INSERT INTO queen.stream_cycles (part_id, stream_id, cycled_at) VALUES (p_source, p_stream, v_now)
    ON CONFLICT DO NOTHING;
    SELECT y.flush INTO v_last_flush FROM queen.stream_cycles AS y
    WHERE y.part_id = p_source AND y.stream_id = p_stream FOR UPDATE;

    -- A repeated sending whose first was committed is answered from the log; a first that is still on its way is fenced out.
    IF p_again AND v_last_flush = p_flush THEN
        RETURN QUERY
        SELECT 'push', r.part_id, NULL, r.first_off, r.created_at, r.dup_pos, r.dup_off, NULL::bigint, NULL::bool,
            NULL::bool, NULL::bool
        FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash) AS r;
        RETURN QUERY
        SELECT 'ack', NULL::bigint, NULL, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint,
            p_release, p_ack_kind <> 'c', true
        WHERE p_ack_kind IS NOT NULL;
        RETURN;
    ELSIF p_again THEN
        INSERT INTO queen.fenced_flushes VALUES (p_flush, clock_timestamp()) ON CONFLICT DO NOTHING;
    ELSIF EXISTS (SELECT 1 FROM queen.fenced_flushes AS f WHERE f.flush = p_flush) THEN
        RAISE EXCEPTION 'cycle % was sent again and is done', p_flush USING ERRCODE = 'QN001';
    END IF;

    BEGIN
        IF p_ack_kind IS NOT NULL THEN
            SELECT c.acked INTO v_acked FROM queen.partition_consumers AS c
            WHERE c.part_id = p_source AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
            v_off := coalesce(p_ack_off, (
                SELECT t.off FROM queen.transaction_ids AS t WHERE t.part_id = p_source AND t.hash = p_ack_hash
            ));
            kind := 'ack';
            FOR v_row IN
                SELECT * FROM queen.ack_messages_v1(
                    ARRAY[p_source], ARRAY[p_grp], ARRAY[p_ack_lease], ARRAY[p_ack_kind],
                    ARRAY[CASE WHEN p_ack_kind = 'c' AND v_off > v_acked THEN v_acked + 1 ELSE v_off END], ARRAY[v_off],
                    ARRAY[p_ack_hash], ARRAY[p_ack_error], p_ack_kind <> 'c')
            LOOP
                v_problem := CASE
                    -- It ends a run of which others may not be done: first what became of itself.
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
            IF v_problem IS NULL AND p_release AND NOT released THEN
                UPDATE queen.partition_consumers AS c SET lease = NULL, ready_at = v_now, ver = c.ver + 1
                WHERE c.part_id = p_source AND c.grp_id = p_grp AND c.ver = (
                    SELECT l.ver FROM (
                        SELECT n.ver, n.lease, n.ready_at FROM queen.partition_consumers AS n
                        WHERE n.part_id = p_source AND n.grp_id = p_grp ORDER BY n.ver DESC LIMIT 1) AS l
                    WHERE l.lease = p_ack_lease AND l.ready_at > v_now);
                released := FOUND;
                ready := FOUND;
            END IF;
            RETURN NEXT;
        ELSIF p_part <> '{}' AND array_position(p_value, NULL) IS NOT NULL THEN
            v_problem := queen.flush_problem(p_stream, p_source, p_grp, p_key, p_value, v_now);
        END IF;
        IF v_problem IS NOT NULL THEN
            RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
        END IF;

        DELETE FROM queen.stream_state AS s USING unnest(p_key, p_value) AS u (key, value)
        WHERE s.part_id = p_source AND s.stream_id = p_stream AND s.key = u.key AND u.value IS NULL;
        INSERT INTO queen.stream_state AS s (part_id, stream_id, key, value, window_end, updated_at)
        SELECT p_source, p_stream, u.key, u.value::json, u.window_end, v_now
        FROM unnest(p_key, p_value, p_window_end) AS u (key, value, window_end) WHERE u.value IS NOT NULL
        ON CONFLICT (part_id, stream_id, key) DO UPDATE
        SET value = excluded.value, window_end = excluded.window_end, updated_at = excluded.updated_at;
        UPDATE queen.stream_cycles AS y SET grp_id = p_grp, flush = p_flush, cycled_at = v_now
        WHERE y.part_id = p_source AND y.stream_id = p_stream;

        IF p_part <> '{}' THEN
            kind := 'push';
            completed := NULL;
            released := NULL;
            dead := NULL;
            ready := NULL;
            FOR v_row IN
                SELECT * FROM queen.push_messages_v1(
                    p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash,
                    p_version, p_limited)
            LOOP
                part_id := v_row.part_id;
                first_off := v_row.first_off;
                created_at := v_row.created_at;
                dup_pos := v_row.dup_pos;
                dup_off := v_row.dup_off;
                v_undone := v_undone OR first_off IS NULL;
                IF v_row.room IS NOT NULL THEN
                    v_full := true;
                    v_problem := 'The queue of the outputs is full (maxSize): try again when its consumers have caught up';
                END IF;
                RETURN NEXT;
            END LOOP;
            -- No row: the options have changed.
            v_undone := v_undone OR NOT FOUND;
        END IF;
        IF v_undone THEN
            RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QN002' THEN
        IF v_full THEN
            PERFORM queen.count_each_again(p_limited);
        END IF;
        kind := 'undone';
        problem := v_problem;
        RETURN NEXT;
    END;
END $$;
COMMENT ON FUNCTION queen.cycle_stream_v1 IS 'A cycle of a stream: ack, state and outputs, all or none.';

-- Why a flush, which is a cycle without an ack that deletes state and pushes what it made of it, cannot be right. The caller
-- holds the lock of cycles.
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
        RETURN 'The partition is leased: whoever holds it may have read this state already; flush again later';
    END IF;
    SELECT count(*), bool_or(queen.is_unsettled(s.updated_at, s.window_end, p_now)) INTO v_found, v_unsettled
    FROM unnest(p_key, p_value) AS u (key, value)
    JOIN queen.stream_state AS s ON s.part_id = p_source AND s.stream_id = p_stream AND s.key = u.key
    WHERE u.value IS NULL;
    IF v_found < cardinality(array_positions(p_value, NULL)) THEN
        RETURN 'State not found: this flush, or another, has been committed';
    ELSIF v_unsettled THEN
        RETURN 'The state changed a moment ago: read it again before flushing it';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.flush_problem IS 'Internal: why a flush of windows has to be refused.';
