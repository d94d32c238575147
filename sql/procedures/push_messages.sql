-- Purpose:   appends one segment to each of many partitions, all or none; the only writer of the log.
-- Arguments: p_flush     id of this call, the same when it is sent again
--            p_again     whether it is sent again because the first outcome is unknown
--            p_part, p_n, p_data, p_ids   one element a segment: partition (ascending, distinct), messages, data, ids
--            p_hash_part, p_hash_pos, p_hash   one element a client-chosen transaction id: partition, place in its segment
--                        from 0, hash; no hash twice in a partition
--            p_version   of queen.push_options, under which the flush was laid out
--            p_limited   numbers of those of its queues that have a maximum size, or null
-- Returns:   one row a segment: part_id, the offset of its first stored message (null: nothing was stored, because some
--            partition of the call is unknown), created_at, and places and offsets of its duplicates (null: none).
--            Stored messages take offsets in order, duplicates none. Nothing is stored either when a queue would become
--            too large: one row a segment of such queues, with the messages that it has room for in room. No row at all
--            says that the options have changed, and that nothing was stored.
-- Locks:     rows of limited queues in id order; partition_lookup in part_id order, until commit; then parked cursors in
--            (part_id, grp_id) order.
-- Writes:    partition_lookup, segments, transaction_ids, partition_consumers (wake-up), fenced_flushes (p_again).
CREATE OR REPLACE FUNCTION queen.push_messages_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint, p_limited bigint[]
) RETURNS TABLE (
    part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[], room bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_next bigint[];          -- next_off of each head before this call, in the order of p_part
    v_parked bigint[];
    v_duplicates bool := false;
    v_now timestamptz;
    v_version bigint;
    v_fenced bool;
BEGIN
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_queues(p_limited);
    END IF;
    SELECT array_agg(h.next_off), array_agg(h.part_id) FILTER (WHERE h.parked) INTO v_next, v_parked
    FROM (
        SELECT l.part_id, l.next_off, l.parked FROM queen.partition_lookup AS l
        WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE
    ) AS h;
    -- Under the head locks: a first sending that is still on its way cannot overtake its repetition, or be overtaken. And before
    -- anything is said to be unknown: a queue may have been deleted since the first sending was committed.
    IF p_again THEN
        RETURN QUERY SELECT f.*, NULL::bigint FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash) AS f;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF v_next IS NULL OR cardinality(v_next) < cardinality(p_part) THEN
        RETURN QUERY SELECT u.part_id, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint
        FROM unnest(p_part) AS u (part_id)
        WHERE NOT EXISTS (SELECT 1 FROM queen.partition_lookup AS l WHERE l.part_id = u.part_id);
        RETURN;
    END IF;

    -- Not before: what a first sending has stored is stored, whatever was configured since. And under the head locks, for
    -- which a change of the options waits.
    SELECT o.version, EXISTS (SELECT 1 FROM queen.fenced_flushes AS f WHERE f.flush = p_flush) INTO v_version, v_fenced
    FROM queen.push_options AS o
    WHERE o.id;
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
        FROM queen.find_full(p_limited, p_part, p_n) AS f;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    v_now := queen.clock();
    IF p_hash IS NOT NULL THEN
        -- Duplicates are rare: nobody looks for them, the primary key finds them. Under the head locks nobody else inserts
        -- transaction ids of these partitions, so that the key makes no push wait for another.
        BEGIN
            INSERT INTO queen.transaction_ids (part_id, hash, off)
            SELECT u.part_id, u.hash, h.next_off + u.pos
            FROM unnest(p_hash_part, p_hash_pos, p_hash) AS u (part_id, pos, hash)
            JOIN unnest(p_part, v_next) AS h (part_id, next_off) ON h.part_id = u.part_id
            ORDER BY u.part_id, u.hash;
        EXCEPTION WHEN unique_violation THEN
            v_duplicates := true;
        END;
    END IF;
    IF v_duplicates THEN
        RETURN QUERY SELECT a.*, NULL::bigint FROM queen.append_without_duplicates(
            p_flush, v_now, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash) AS a;
    ELSE
        RETURN QUERY
        WITH head AS (
            UPDATE queen.partition_lookup AS l
            SET next_off = l.next_off + u.n, last_at = greatest(l.last_at, v_now), parked = false
            FROM unnest(p_part, p_n) AS u (part_id, n)
            WHERE l.part_id = ANY(ARRAY[u.part_id])
            RETURNING l.part_id, l.next_off, l.last_at
        ), segment AS (
            INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
            SELECT head.part_id, head.next_off - 1, u.n, head.last_at, p_flush, u.ids, u.ends, u.data
            FROM unnest(p_part, p_n, p_data, p_ends, p_ids) AS u (part_id, n, data, ends, ids)
            JOIN head ON head.part_id = u.part_id
            RETURNING segments.part_id, segments.last_off - segments.n + 1 AS first_off, segments.created_at
        )
        SELECT segment.part_id, segment.first_off, segment.created_at, NULL::int[], NULL::bigint[], NULL::bigint FROM segment;
    END IF;
    IF v_parked IS NOT NULL THEN
        PERFORM queen.wake(v_parked, v_now);
    END IF;
END $$;
COMMENT ON FUNCTION queen.push_messages_v1 IS 'Appends one segment to each of many partitions, all or none. Called by the server, once a flush.';
