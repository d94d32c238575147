-- Purpose:   pushes, acks and timers of one or more transactions: all or none.
-- Arguments: those of execute_transaction_v1, and of each timer:
--            p_timer_queue, p_timer_key, p_timer_partition, p_timer_id, p_timer_delay, p_timer_at, p_timer_message
--            as change_timers_v1; the server has made the keys
-- Returns:   the rows of execute_transaction_v1, and one per timer (kind timer: ord from 1, created_at: when it is due).
--            Only one row of kind stale: the options have changed, or a queue was deleted; nothing was done.
-- Locks:     the queues of the timers FOR KEY SHARE; then those of execute_transaction_v1.
-- Writes:    timers; queues that are missing for them; and what execute_transaction_v1 writes.
CREATE OR REPLACE FUNCTION queen.execute_with_timers_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[],
    p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[], p_ack_kind text[], p_ack_first bigint[],
    p_ack_last bigint[], p_ack_hash uuid[], p_ack_error text[], p_required uuid[],
    p_new_part bigint[], p_new_queue text[], p_new_name text[], p_version bigint, p_limited bigint[],
    p_timer_queue text[], p_timer_key text[], p_timer_partition text[], p_timer_id text[], p_timer_delay float8[],
    p_timer_at timestamptz[], p_timer_message text[]
) RETURNS TABLE (
    kind text, part_id bigint, ord int, problem text, first_off bigint, created_at timestamptz, dup_pos int[],
    dup_off bigint[], done_upto bigint, within bigint, exists_upto bigint, released bool, dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_queues text[] := ARRAY(SELECT DISTINCT u FROM unnest(p_timer_queue) AS u);
    v_now timestamptz := queen.clock();
    v_locked int;
    v_stored int := 0;
    v_undone bool := false;
BEGIN
    -- Before partitions are locked. A queue that is deleted later is deleted with these timers.
    PERFORM queen.make_queues(v_queues);
    PERFORM 1 FROM queen.queues AS q WHERE q.name = ANY(v_queues) ORDER BY q.id FOR KEY SHARE;
    GET DIAGNOSTICS v_locked = ROW_COUNT;
    IF v_locked < cardinality(v_queues) OR (SELECT o.version FROM queen.push_options AS o WHERE o.id) <> p_version THEN
        kind := 'stale';
        RETURN NEXT;
        RETURN;
    END IF;
    FOR kind, part_id, ord, problem, first_off, created_at, dup_pos, dup_off, done_upto, within, exists_upto, released,
        dead, ready
    IN
        SELECT * FROM queen.execute_transaction_v1(
            p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_ack_part,
            p_ack_grp, p_ack_lease, p_ack_kind, p_ack_first, p_ack_last, p_ack_hash, p_ack_error, p_required,
            p_new_part, p_new_queue, p_new_name, p_version, p_limited)
    LOOP
        v_undone := v_undone OR kind = 'undone';
        v_stored := v_stored + (kind = 'push' AND first_off IS NOT NULL)::int;
        RETURN NEXT;
    END LOOP;
    -- Otherwise a partition is unknown, or the options have changed, and nothing was stored.
    IF v_undone OR v_stored < cardinality(p_part) THEN
        RETURN;
    END IF;
    kind := 'timer';
    ord := 0;
    FOR created_at IN
        INSERT INTO queen.timers AS t (deliver_at, queue_id, key, partition, transaction_id, asked_at, message)
        SELECT greatest(v_now, u.at, v_now + make_interval(secs => u.delay)), q.id, u.key, u.partition, u.id,
            CASE WHEN u.delay IS NOT NULL THEN v_now END, u.message
        FROM unnest(
            p_timer_queue, p_timer_key, p_timer_partition, p_timer_id, p_timer_delay, p_timer_at, p_timer_message
        ) WITH ORDINALITY AS u (queue, key, partition, id, delay, at, message, ord)
        JOIN queen.queues AS q ON q.name = ANY(ARRAY[u.queue])
        ORDER BY u.ord
        -- This is a repetition, and the first sending has set it.
        ON CONFLICT (queue_id, key) DO UPDATE SET deliver_at = t.deliver_at
        RETURNING t.deliver_at
    LOOP
        ord := ord + 1;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.execute_with_timers_v1 IS 'Pushes, acks and timers in one transaction: all or none.';
