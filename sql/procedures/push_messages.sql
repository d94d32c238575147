-- Purpose:   appends one segment to each of many partitions, all or none; the only writer of the log.
-- Arguments: p_flush     id of this call, the same when it is sent again
--            p_again     true if it is sent again, because the first outcome is unknown
--            p_part, p_n, p_data, p_ids   one element per segment: partition (ascending, distinct), messages, data, ids
--            p_hash_part, p_hash_pos, p_hash   one element per client-chosen transaction id: partition, place in its segment
--                        from 0, hash; no hash twice in a partition
--            p_version   of queen.push_options, under which the flush was laid out
--            p_limited   numbers of those of its queues that have a maximum size, or null
--            p_besides   groups whose parked cursors are left to the caller, or null
-- Returns:   one row per segment: part_id, the offset of its first stored message (null: nothing was stored, because
--            some partition of the call is unknown), created_at, and places and offsets of its duplicates (null: none).
--            Stored messages take offsets in order, duplicates none. Nothing is stored either when a queue would become
--            too large: one row per segment of such queues, with the number of messages for which there is room. No row
--            at all: the options have changed, and nothing was stored.
-- Locks:     rows of limited queues in id order; partitions in part_id order, until commit; the sizes of these queues
--            (lock_size); then parked cursors in (part_id, grp_id) order.
-- Writes:    segments, transaction_ids, partition_consumers (wake-up), fenced_flushes (p_again), queue_sizes
--            (p_limited).
-- Plans:     ADR 38 says why part_id + 0.
CREATE OR REPLACE FUNCTION queen.push_messages_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint, p_limited bigint[],
    p_besides bigint[] DEFAULT NULL
) RETURNS TABLE (
    part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[], room bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_locked int;
    v_first bigint[];         -- offset of the first message of each segment, in the order of p_part
    v_at timestamptz[];       -- created_at of each
    d_part bigint[];          -- messages that are stored already: partition, position in its segment, offset
    d_pos int[];
    d_off bigint[];
    v_duplicates bool := false;
    v_now timestamptz;
    v_version bigint;
    v_fenced bool;
    v_parked bool;            -- whether a cursor waits for what is appended
BEGIN
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_queues(p_limited);
    END IF;
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    GET DIAGNOSTICS v_locked = ROW_COUNT;
    -- This comes after the locks, so that a first sending that is still on its way and its repetition cannot overtake
    -- each other. It comes before any partition is found unknown: the queue may have been deleted since the first was
    -- committed.
    IF p_again THEN
        RETURN QUERY SELECT f.*, NULL::bigint FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash) AS f;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF v_locked < cardinality(p_part) THEN
        RETURN QUERY SELECT u.part_id, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint
        FROM unnest(p_part) AS u (part_id)
        WHERE NOT EXISTS (SELECT 1 FROM queen.partition_locks AS l WHERE l.part_id = u.part_id);
        RETURN;
    END IF;

    -- Not before: what a first sending has stored stays, even if the options have changed since. And after the locks: a
    -- change of the options, another append, and a cursor that parks there wait for them.
    v_now := queen.write_clock();
    SELECT o.version, EXISTS (SELECT 1 FROM queen.fenced_flushes AS f WHERE f.flush = p_flush), l.first_off, l.at, l.parked
    INTO v_version, v_fenced, v_first, v_at, v_parked
    FROM (
        SELECT array_agg(e.next_off ORDER BY e.part_id) AS first_off,
            array_agg(greatest(e.last_at, v_now) ORDER BY e.part_id) AS at, bool_or(c.parked) AS parked
        FROM queen.log_ends AS e
        LEFT JOIN LATERAL (
            SELECT true AS parked FROM queen.partition_consumers AS p
            WHERE p.part_id + 0 = e.part_id AND p.acked = e.next_off - 1 AND p.ready_at = 'infinity' LIMIT 1
        ) AS c ON true
        WHERE e.part_id = ANY(p_part)
    ) AS l
    JOIN queen.push_options AS o ON o.id;
    IF p_again THEN
        INSERT INTO queen.fenced_flushes VALUES (p_flush, clock_timestamp()) ON CONFLICT DO NOTHING;
    ELSIF v_fenced THEN
        RAISE EXCEPTION 'flush % was sent again and is done', p_flush USING ERRCODE = 'QN001';
    END IF;
    IF p_version <> v_version THEN
        RETURN;
    END IF;
    IF p_limited IS NOT NULL THEN
        RETURN QUERY
        SELECT f.part_id, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], f.room
        FROM queen.take_room(p_limited, p_part, p_n) AS f;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    IF p_hash IS NOT NULL THEN
        -- Duplicates are rare: the primary key finds them, not a search. Under the locks no other call inserts
        -- transaction ids of these partitions, so that the key makes no push wait for another.
        BEGIN
            INSERT INTO queen.transaction_ids (part_id, hash, off)
            SELECT u.part_id, u.hash, h.first_off + u.pos
            FROM unnest(p_hash_part, p_hash_pos, p_hash) AS u (part_id, pos, hash)
            JOIN unnest(p_part, v_first) AS h (part_id, first_off) ON h.part_id = u.part_id
            ORDER BY u.part_id, u.hash;
        EXCEPTION WHEN unique_violation THEN
            v_duplicates := true;
        END;
    END IF;
    IF v_duplicates THEN
        SELECT * INTO d_part, d_pos, d_off, p_n, p_data, p_ends, p_ids
        FROM queen.leave_out_duplicates(p_part, v_first, p_hash_part, p_hash_pos, p_hash, p_n, p_data, p_ends, p_ids);
    END IF;
    -- A segment of duplicates only is not written.
    RETURN QUERY
    WITH appended AS (
        INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
        SELECT u.part_id, u.first_off + u.n - 1, u.n, u.at, p_flush, u.ids, u.ends, u.data
        FROM unnest(p_part, v_first, v_at, p_n, p_data, p_ends, p_ids) AS u (part_id, first_off, at, n, data, ends, ids)
        WHERE u.n > 0
    )
    SELECT u.part_id, u.first_off, u.at, d.pos, d.off, NULL::bigint
    FROM unnest(p_part, v_first, v_at) AS u (part_id, first_off, at)
    LEFT JOIN (
        SELECT o.part_id, array_agg(o.pos ORDER BY o.pos) AS pos, array_agg(o.off ORDER BY o.pos) AS off
        FROM unnest(d_part, d_pos, d_off) AS o (part_id, pos, off) GROUP BY o.part_id
    ) AS d ON d.part_id = u.part_id;
    IF v_parked THEN
        PERFORM queen.wake(p_part, v_first, v_now, p_besides);
    END IF;
END $$;
COMMENT ON FUNCTION queen.push_messages_v1 IS
    'Appends one segment to each of many partitions, all or none. The server calls it once per batch.';
