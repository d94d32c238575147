-- Purpose:   pushes and acks of one or more transactions: all or none.
-- Arguments: those of push_messages_v1 and ack_messages_v1, one message per element, and
--            p_required  leases of which one must be live on the cursor of every ack that names none (null: no such demand)
--            p_new_part, p_new_queue, p_new_name  partitions that are made if missing, so that an undone transaction leaves none
--                        behind: the negative numbers that stand for them in p_part and p_hash_part, and their names
--            p_version, p_limited  as push_messages_v1
-- Returns:   one row per pushed segment (kind push: part_id, first_off, created_at, dup_pos, dup_off) and rows of acks
--            (kind ack: ord, problem, first_off, done_upto, within, exists_upto, released, dead, ready); an ack without
--            a row is accepted. A last row of kind undone says that something failed and that nothing was stored; the
--            other rows say what failed. A segment whose queue would become too large has a problem. No segment at all:
--            the options of queues have changed. A row of kind made says which part_id a partition got for its negative
--            number (ord).
-- Locks:     rows of limited queues in id order; partitions in part_id order; the sizes of these queues;
--            then in (part_id, grp_id) order the cursors of the acks and those that the push wakes.
CREATE OR REPLACE FUNCTION queen.execute_transaction_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[],
    p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[], p_ack_kind text[], p_ack_first bigint[],
    p_ack_last bigint[], p_ack_hash uuid[], p_ack_error text[], p_required uuid[],
    p_new_part bigint[], p_new_queue text[], p_new_name text[], p_version bigint, p_limited bigint[]
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
    v_gather bool := cardinality(p_ack_part) > 100 OR array_position(p_ack_first, NULL) IS NOT NULL;
    v_ends record;            -- see queen.lock_log_ends
    v_moved record;           -- see queen.append_and_complete
    a_part bigint[] := p_ack_part;   -- the acks, one element per cursor, in the order of locks
    a_grp bigint[] := p_ack_grp;
    a_lease uuid[] := p_ack_lease;
    a_first bigint[] := p_ack_first;
    a_last bigint[] := p_ack_last;
    a_runs int8multirange[];  -- null: one run
    a_ord int[];
    v_freed int[];            -- acks by which a lease has ended
    v_asleep bigint[];        -- partitions in which a cursor waits for a push now
    v_done bool := false;
BEGIN
    -- The fast path, for usual transactions: messages are completed under their live lease, and others pushed to
    -- partitions that exist. It assumes all of that, and undoes itself if something is different.
    IF NOT p_again AND p_required IS NULL AND p_limited IS NULL AND p_new_part = '{}' AND 'c' = ALL(p_ack_kind) THEN
        v_ends := queen.lock_log_ends(p_flush, p_part, p_version);
        v_done := coalesce(v_ends.valid, false);
    END IF;
    IF v_done THEN
        FOR i IN 2 .. CASE WHEN v_gather THEN 0 ELSE cardinality(p_ack_part) END LOOP
            v_gather := v_gather OR p_ack_part[i] <= p_ack_part[i - 1];
        END LOOP;
        IF v_gather THEN
            SELECT * INTO a_part, a_grp, a_lease, a_first, a_last, a_runs, a_ord
            FROM queen.gather_acks(p_ack_part, p_ack_grp, p_ack_lease, p_ack_first, p_ack_last, p_ack_hash);
        END IF;
        IF v_ends.parked THEN
            -- Acks alone lock their cursors in order; a push that wakes others goes between. No cursor is parked under
            -- the locks.
            PERFORM queen.lock_cursors(p_part, a_part, a_grp);
        END IF;
        BEGIN
            v_moved := queen.append_and_complete(
                p_flush, v_ends.now, v_ends.first_off, v_ends.created_at, p_part, p_n, p_data, p_ends, p_ids,
                p_hash_part, p_hash_pos, p_hash, a_part, a_grp, a_lease, a_first, a_last, a_runs, a_ord);
        EXCEPTION WHEN SQLSTATE 'QN002' OR unique_violation THEN
            v_done := false;
        END;
    END IF;
    IF NOT v_done THEN
        RETURN QUERY SELECT * FROM queen.execute_in_steps(
            p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_ack_part, p_ack_grp,
            p_ack_lease, p_ack_kind, p_ack_first, p_ack_last, p_ack_hash, p_ack_error, p_required, p_new_part, p_new_queue,
            p_new_name, p_version, p_limited);
        RETURN;
    END IF;

    IF v_ends.parked THEN
        PERFORM queen.wake(p_part, v_ends.first_off, v_ends.now);
    END IF;
    kind := 'push';
    FOR i IN 1 .. cardinality(p_part) LOOP
        part_id := p_part[i];
        first_off := v_ends.first_off[i];
        RETURN NEXT;
    END LOOP;
    v_freed := v_moved.freed;
    IF v_moved.drained IS NOT NULL THEN
        v_asleep := queen.park(v_moved.drained_part, v_moved.drained_grp, v_moved.drained_ver);
        -- For cursors that this push keeps ready, the push notifies.
        v_freed := v_freed || ARRAY(
            -- FULL: arrays look small to a planner, which would go through all of one for each element of the other.
            SELECT u.ord FROM unnest(v_moved.drained, v_moved.drained_part) AS u (ord, part_id)
            FULL JOIN unnest(v_asleep || p_part) AS a (part_id) ON a.part_id = u.part_id
            WHERE CASE WHEN a.part_id IS NULL THEN true ELSE false END);
    END IF;
    kind := 'ack';
    part_id := NULL;
    first_off := NULL;
    ready := true;
    FOREACH ord IN ARRAY coalesce(v_freed, '{}') LOOP
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.execute_transaction_v1 IS 'Pushes and acks in one transaction: all or none.';
