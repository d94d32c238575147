-- Purpose:   pushes and acks in one transaction: all or none.
-- Arguments: those of push_messages_v1 and ack_messages_v1, and
--            p_required  leases of which one must be live on the cursor of every ack that names none (null: no such demand)
--            p_new_part, p_new_queue, p_new_name  partitions that are made if missing, so that an undone transaction leaves none
--                        behind: the negative numbers that stand for them in p_part and p_hash_part, and their names
--            p_version, p_limited  as push_messages_v1
-- Returns:   a row a pushed segment (kind push: part_id, first_off, created_at, dup_pos, dup_off) and a row an ack (kind
--            ack: ord, problem, first_off, done_upto, within, exists_upto, released, dead, ready). A last row of kind undone says that something
--            failed, which the other rows name, and that nothing was stored; a segment whose queue would become too
--            large has a problem, and no segment at all says that the options of queues have changed. A row of kind made says which part_id a partition got
--            for its negative number (ord).
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
    v_now timestamptz := queen.clock();
    v_row record;
    v_failed bool := false;
    v_full bool := false;
    v_lease uuid[] := p_ack_lease;
    v_made bigint[];          -- partitions that were made, in the order of p_new_part
    v_beyond bool[];          -- of each ack, whether it names what was not there before this call
BEGIN
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_queues(p_limited);
    END IF;
    IF p_again THEN
        -- Outside of what may be undone: if this sending is refused, the first must not arrive and be carried out later.
        PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
        INSERT INTO queen.fenced_flushes VALUES (p_flush, clock_timestamp()) ON CONFLICT DO NOTHING;
    END IF;
    BEGIN
        IF p_new_part <> '{}' THEN
            FOR v_row IN SELECT r.ord, r.part_id FROM queen.resolve_partitions_v1(p_new_queue, p_new_name, true) AS r LOOP
                kind := 'made';
                ord := p_new_part[v_row.ord];
                part_id := v_row.part_id;
                -- Its queue is being deleted at this very moment.
                v_failed := v_failed OR part_id IS NULL;
                RETURN NEXT;
                v_made := v_made || part_id;
            END LOOP;
            IF v_failed THEN
                RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
            END IF;
            SELECT
                array_agg(u.part_id ORDER BY u.part_id), array_agg(u.n ORDER BY u.part_id),
                array_agg(u.data ORDER BY u.part_id), array_agg(u.ends ORDER BY u.part_id), array_agg(u.ids ORDER BY u.part_id)
            INTO p_part, p_n, p_data, p_ends, p_ids
            FROM (
                SELECT coalesce(m.part_id, s.part_id) AS part_id, s.n, s.data, s.ends, s.ids
                FROM unnest(p_part, p_n, p_data, p_ends, p_ids) AS s (part_id, n, data, ends, ids)
                LEFT JOIN unnest(p_new_part, v_made) AS m (new_part, part_id) ON m.new_part = s.part_id
            ) AS u;
            SELECT array_agg(coalesce(m.part_id, h.part_id) ORDER BY h.ord) INTO p_hash_part
            FROM unnest(p_hash_part) WITH ORDINALITY AS h (part_id, ord)
            LEFT JOIN unnest(p_new_part, v_made) AS m (new_part, part_id) ON m.new_part = h.part_id;
        END IF;
        PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
        PERFORM queen.lock_sizes(p_limited);
        PERFORM queen.lock_cursors(p_part, p_ack_part, p_ack_grp);
        SELECT array_agg(p.part_id IS NOT NULL AND coalesce(coalesce(a.last, a.first, t.off) >= e.next_off, true) ORDER BY a.ord)
        INTO v_beyond
        FROM unnest(p_ack_part, p_ack_first, p_ack_last, p_ack_hash) WITH ORDINALITY AS a (part_id, first, last, hash, ord)
        LEFT JOIN unnest(p_part) AS p (part_id) ON p.part_id = a.part_id
        LEFT JOIN LATERAL (SELECT l.next_off FROM queen.log_ends AS l WHERE l.part_id = p.part_id OFFSET 0) AS e ON true
        LEFT JOIN queen.transaction_ids AS t
            ON a.first IS NULL AND t.part_id = ANY(ARRAY[a.part_id]) AND t.hash = a.hash;

        -- A repeated sending whose first was committed is answered from the log: its acks were accepted then.
        IF p_again AND EXISTS (SELECT 1 FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash)) THEN
            RETURN QUERY
            SELECT 'push', r.part_id, NULL::int, NULL, r.first_off, r.created_at, r.dup_pos, r.dup_off, NULL::bigint,
                NULL::bigint, NULL::bigint, NULL::bool, NULL::bool, NULL::bool
            FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash) AS r;
            RETURN QUERY
            SELECT 'ack', NULL::bigint, u.ord::int, NULL, coalesce(u.first, t.off), NULL::timestamptz, NULL::int[],
                NULL::bigint[], NULL::bigint, NULL::bigint, NULL::bigint, false, false, true
            FROM unnest(p_ack_part, p_ack_first, p_ack_hash) WITH ORDINALITY AS u (part_id, first, hash, ord)
            LEFT JOIN queen.transaction_ids AS t
                ON u.first IS NULL AND t.part_id = ANY(ARRAY[u.part_id]) AND t.hash = u.hash;
            RETURN;
        END IF;

        IF p_required IS NOT NULL THEN
            p_required := ARRAY(SELECT DISTINCT n FROM unnest(p_required) AS n);
            SELECT array_agg(coalesce(u.lease, r.lease, '00000000-0000-0000-0000-000000000000') ORDER BY u.ord) INTO v_lease
            FROM unnest(p_ack_part, p_ack_grp, p_ack_lease) WITH ORDINALITY AS u (part_id, grp_id, lease, ord)
            LEFT JOIN LATERAL (
                SELECT c.lease, c.ready_at FROM queen.partition_consumers AS c
                WHERE c.part_id = u.part_id AND c.grp_id = u.grp_id ORDER BY c.ver DESC LIMIT 1
            ) AS c ON true
            LEFT JOIN unnest(p_required) AS r (lease) ON r.lease = c.lease AND c.ready_at > v_now;
        END IF;

        IF p_part <> '{}' THEN
            FOR v_row IN
                SELECT * FROM queen.push_messages_v1(
                    p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash,
                    p_version, p_limited)
            LOOP
                kind := 'push';
                part_id := v_row.part_id;
                problem := CASE WHEN v_row.room IS NOT NULL THEN 'Queue is full' END;
                first_off := v_row.first_off;
                created_at := v_row.created_at;
                dup_pos := v_row.dup_pos;
                dup_off := v_row.dup_off;
                v_failed := v_failed OR first_off IS NULL OR dup_pos IS NOT NULL;
                v_full := v_full OR v_row.room IS NOT NULL;
                RETURN NEXT;
            END LOOP;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
            END IF;
        END IF;
        part_id := NULL;
        created_at := NULL;
        dup_pos := NULL;
        dup_off := NULL;
        FOR v_row IN
            SELECT r.*, coalesce(a.last, r.first_off) AS last_off, a.beyond
            FROM queen.ack_messages_v1(
                p_ack_part, p_ack_grp, v_lease, p_ack_kind, p_ack_first, p_ack_last, p_ack_hash, p_ack_error,
                -- Nothing but completed acks, sent again: what is done was done by the first sending.
                NOT (p_again AND p_part = '{}' AND 'c' = ALL(p_ack_kind))) AS r
            JOIN unnest(p_ack_last, v_beyond) WITH ORDINALITY AS a (last, beyond, ord) ON a.ord = r.ord
        LOOP
            kind := 'ack';
            ord := v_row.ord;
            problem := v_row.problem;
            first_off := v_row.first_off;
            done_upto := v_row.done_upto;
            within := v_row.within;
            exists_upto := v_row.exists_upto;
            released := v_row.released;
            dead := v_row.dead;
            ready := v_row.ready;
            -- The acks are judged as before the pushes, which come first only because their room is judged before the acks.
            IF v_row.beyond THEN
                problem := 'Message not found';
            END IF;
            v_failed := v_failed OR problem IS NOT NULL OR coalesce(v_row.last_off > within, false);
            RETURN NEXT;
        END LOOP;
        IF v_failed THEN
            RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QN002' THEN
        IF v_full THEN
            PERFORM queen.count_each_again(p_limited);
        END IF;
        kind := 'undone';
        RETURN NEXT;
    END;
END $$;
COMMENT ON FUNCTION queen.execute_transaction_v1 IS 'Pushes and acks in one transaction: all or none.';
