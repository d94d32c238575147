-- Wakes the parked cursors of partitions whose heads the caller has locked and is moving.
CREATE OR REPLACE FUNCTION queen.wake(p_part bigint[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE queen.partition_consumers AS c
    SET ready_at = p_now + make_interval(secs => greatest(q.delayed_processing, q.window_buffer))
    FROM (
        SELECT l.part_id, l.grp_id FROM queen.partition_consumers AS l
        WHERE l.part_id = ANY(p_part) AND NOT isfinite(l.ready_at)
        ORDER BY l.part_id, l.grp_id FOR UPDATE
    ) AS parked
    JOIN queen.partitions AS p ON p.id = ANY(ARRAY[parked.part_id])
    JOIN queen.queues AS q ON q.id = ANY(ARRAY[p.queue_id])
    WHERE c.part_id = ANY(ARRAY[parked.part_id]) AND c.grp_id = ANY(ARRAY[parked.grp_id]) AND NOT isfinite(c.ready_at);
END $$;
COMMENT ON FUNCTION queen.wake IS 'Internal: makes the parked cursors of these partitions ready.';

-- The path of push_messages_v1 for a call in which some transaction ids are stored already: cuts those messages out.
-- Caller holds the head locks. A segment of duplicates only is not written.
CREATE OR REPLACE FUNCTION queen.append_without_duplicates(
    p_flush uuid, p_now timestamptz,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[]
) RETURNS TABLE (part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_segment record;
    v_kept int;
    v_data bytea;
    v_ids bytea;
    v_ends bytea;
    v_next bigint;
BEGIN
    FOR v_segment IN
        SELECT u.part_id, u.n, u.data, u.ends, u.ids, d.pos, d.off
        FROM unnest(p_part, p_n, p_data, p_ends, p_ids) AS u (part_id, n, data, ends, ids)
        LEFT JOIN LATERAL (
            SELECT array_agg(h.pos ORDER BY h.pos) AS pos, array_agg(t.off ORDER BY h.pos) AS off
            FROM unnest(p_hash_part, p_hash_pos, p_hash) AS h (part_id, pos, hash)
            JOIN queen.transaction_ids AS t ON t.part_id = ANY(ARRAY[h.part_id]) AND t.hash = ANY(ARRAY[h.hash])
            WHERE h.part_id = u.part_id
        ) AS d ON true
    LOOP
        v_kept := v_segment.n - coalesce(cardinality(v_segment.pos), 0);
        v_data := v_segment.data;
        v_ids := v_segment.ids;
        v_ends := v_segment.ends;
        IF v_segment.pos IS NOT NULL AND v_kept > 0 THEN
            SELECT
                '['::bytea || string_agg(m.message, ','::bytea ORDER BY m.pos) || ']'::bytea,
                string_agg(int4send(m.ends::int), ''::bytea ORDER BY m.pos),
                string_agg(m.id, ''::bytea ORDER BY m.pos)
            INTO v_data, v_ends, v_ids
            FROM (
                SELECT
                    e.pos, e.message, substr(v_segment.ids, 16 * e.pos + 1, 16) AS id,
                    sum(octet_length(e.message) + 1) OVER (ORDER BY e.pos) AS ends
                FROM generate_series(0, v_segment.n - 1) AS i (pos)
                CROSS JOIN LATERAL queen.message_at(v_segment.data, v_segment.ends, i.pos) AS e
                WHERE i.pos <> ALL(v_segment.pos)
            ) AS m;
        END IF;
        UPDATE queen.partition_lookup AS l
        SET
            next_off = l.next_off + v_kept, parked = l.parked AND v_kept = 0,
            last_at = CASE WHEN v_kept > 0 THEN greatest(l.last_at, p_now) ELSE l.last_at END
        WHERE l.part_id = v_segment.part_id
        RETURNING l.next_off, l.last_at INTO v_next, created_at;
        IF v_kept > 0 THEN
            INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
            VALUES (v_segment.part_id, v_next - 1, v_kept, created_at, p_flush, v_ids, v_ends, v_data);
            INSERT INTO queen.transaction_ids (part_id, hash, off)
            SELECT h.part_id, h.hash, v_next - v_kept + h.pos
                - (SELECT count(*) FROM unnest(v_segment.pos) AS gone (pos) WHERE gone.pos < h.pos)
            FROM unnest(p_hash_part, p_hash_pos, p_hash) AS h (part_id, pos, hash)
            WHERE h.part_id = v_segment.part_id AND (v_segment.pos IS NULL OR h.pos <> ALL(v_segment.pos));
        END IF;
        part_id := v_segment.part_id;
        first_off := v_next - v_kept;
        dup_pos := v_segment.pos;
        dup_off := v_segment.off;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.append_without_duplicates IS 'Internal: push_messages_v1 where some transaction ids are stored already.';

-- What push_messages_v1 answered the first time, if the flush had been committed; else no row. A flush that stored
-- nothing but found duplicates leaves no trace and needs none: sending it again finds the same.
CREATE OR REPLACE FUNCTION queen.flushed(
    p_flush uuid, p_part bigint[], p_hash_part bigint[], p_hash_pos int[], p_hash uuid[]
) RETURNS TABLE (part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT 1 FROM unnest(p_part) AS u (part_id), queen.flushed_segment(p_flush, u.part_id)) THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT u.part_id, coalesce(s.first_off, 0), s.created_at, d.pos, d.off
    FROM unnest(p_part) AS u (part_id)
    LEFT JOIN LATERAL queen.flushed_segment(p_flush, u.part_id) AS s ON true
    LEFT JOIN LATERAL (
        SELECT array_agg(h.pos ORDER BY h.pos) AS pos, array_agg(t.off ORDER BY h.pos) AS off
        FROM unnest(p_hash_part, p_hash_pos, p_hash) AS h (part_id, pos, hash)
        JOIN queen.transaction_ids AS t ON t.part_id = ANY(ARRAY[h.part_id]) AND t.hash = ANY(ARRAY[h.hash])
        WHERE h.part_id = u.part_id AND (s.last_off IS NULL OR t.off NOT BETWEEN s.first_off AND s.last_off)
    ) AS d ON true;
END $$;
COMMENT ON FUNCTION queen.flushed IS 'Internal: the answer of a flush that was committed although its first answer was lost.';

-- Walks back from the head and stops at segments too old to be of a flush that is still being repeated. For one that was
-- spooled meanwhile queen.replay_spool_v1 has set queen.sent_at.
CREATE OR REPLACE FUNCTION queen.flushed_segment(
    p_flush uuid, p_part bigint, OUT first_off bigint, OUT last_off bigint, OUT created_at timestamptz
) RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_segment record;
    v_oldest timestamptz := coalesce(nullif(current_setting('queen.sent_at', true), '')::timestamptz, queen.clock())
        - interval '1 hour';
BEGIN
    FOR v_segment IN
        SELECT s.last_off, s.n, s.created_at, s.flush FROM queen.segments AS s
        WHERE s.part_id = p_part ORDER BY s.last_off DESC
    LOOP
        EXIT WHEN v_segment.created_at < v_oldest;
        IF v_segment.flush = p_flush THEN
            first_off := v_segment.last_off - v_segment.n + 1;
            last_off := v_segment.last_off;
            created_at := v_segment.created_at;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.flushed_segment IS 'Internal: the segment that a flush wrote to a partition, if it was not sent more than an hour ago or queen.sent_at is set.';
