-- Purpose:   a cycle of a stream: acks its input, writes its state and pushes its outputs, all or none.
-- Arguments: p_stream, p_source: the partition of the input, p_grp: the group that reads it (null: there is none)
--            those of push_messages_v1
--            p_key, p_value, p_window_end   one element per key of the state, keys distinct: value null deletes it
--            p_ack_kind  c: everything up to the message is completed; f or d: the message is a dead letter; null: no ack
--            p_ack_off, or p_ack_hash of the transaction id (queen.transaction_hash): the message
--            p_release   whether the lease ends although something under it is not done
-- Returns:   one row per pushed segment (kind push: part_id, first_off, created_at, dup_pos, dup_off) and one of kind
--            ack (completed: how many messages; released, dead, ready). A row of kind undone says that something failed
--            and that nothing was stored: see its problem, a push without first_off, or that there is no push at all. A
--            row of kind noop says that a window close was not done, which is no failure: see its problem.
-- Locks:     rows of limited queues in id order; partitions in part_id order; the sizes of these queues; cursors in
--            (part_id, grp_id) order; then the stream, the partition, the cycle's row.
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
    v_problem text;
    v_undone bool := false;
    v_full bool := false;
    v_noop bool := false;
BEGIN
    v_problem := queen.lock_cycle(p_stream, p_source, p_grp, p_part, p_limited);
    IF v_problem IS NOT NULL THEN
        kind := 'undone';
        problem := v_problem;
        RETURN NEXT;
        RETURN;
    END IF;
    INSERT INTO queen.stream_cycles (part_id, stream_id, cycled_at) VALUES (p_source, p_stream, v_now)
    ON CONFLICT DO NOTHING;
    SELECT y.flush INTO v_last_flush FROM queen.stream_cycles AS y
    WHERE y.part_id = p_source AND y.stream_id = p_stream FOR UPDATE;

    -- If the first sending was committed, a repetition is answered from the log; a first that is still on its way is
    -- fenced out.
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
            kind := 'ack';
            SELECT * INTO v_problem, completed, released, dead, ready
            FROM queen.ack_input(
                p_source, p_grp, p_ack_kind, p_ack_lease, p_ack_off, p_ack_hash, p_ack_error, p_release, v_now);
            RETURN NEXT;
        ELSIF p_part <> '{}' AND array_position(p_value, NULL) IS NOT NULL THEN
            v_problem := queen.flush_problem(p_stream, p_source, p_grp, p_key, p_value, v_now);
            v_noop := v_problem IS NOT NULL;
        END IF;
        IF v_problem IS NOT NULL THEN
            RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
        END IF;

        PERFORM queen.write_stream_state(p_stream, p_source, p_key, p_value, p_window_end, v_now);
        UPDATE queen.stream_cycles AS y SET grp_id = p_grp, flush = p_flush, cycled_at = v_now
        WHERE y.part_id = p_source AND y.stream_id = p_stream;

        IF p_part <> '{}' THEN
            kind := 'push';
            completed := NULL;
            released := NULL;
            dead := NULL;
            ready := NULL;
            FOR part_id, first_off, created_at, dup_pos, dup_off, v_full IN
                SELECT u.part_id, u.first_off, u.created_at, u.dup_pos, u.dup_off, u.room IS NOT NULL
                FROM queen.push_messages_v1(
                    p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash,
                    p_version, p_limited) AS u
            LOOP
                v_undone := v_undone OR first_off IS NULL;
                IF v_full THEN
                    v_problem := 'The queue of the outputs is full (maxSize). Try again when its consumers have caught up';
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
        kind := CASE WHEN v_noop THEN 'noop' ELSE 'undone' END;
        problem := v_problem;
        RETURN NEXT;
    END;
END $$;
COMMENT ON FUNCTION queen.cycle_stream_v1 IS 'A cycle of a stream: ack, state and outputs, all or none.';
