-- Plans: ADR 38 says why = ANY(ARRAY[x]), part_id + 0.

-- Wakes the parked cursors of partitions that the caller has locked and appends to. A cursor is parked at the end of
-- the log, so p_first, the offsets of what is appended, say where. Not those of the groups p_besides.
CREATE OR REPLACE FUNCTION queen.wake(
    p_part bigint[], p_first bigint[], p_now timestamptz, p_besides bigint[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_part bigint[];
    v_grp bigint[];
    v_ver bigint[];
BEGIN
    SELECT array_agg(l.part_id), array_agg(l.grp_id), array_agg(l.ver) INTO v_part, v_grp, v_ver
    FROM (
        SELECT c.part_id, c.grp_id, c.ver
        FROM unnest(p_part, p_first) AS u (part_id, first_off)
        CROSS JOIN LATERAL (
            SELECT p.part_id, p.grp_id, p.ver FROM queen.partition_consumers AS p
            WHERE p.part_id + 0 = u.part_id AND p.acked = u.first_off - 1 AND p.ready_at = 'infinity'
                AND (p_besides IS NULL OR p.grp_id <> ALL(p_besides))
            ORDER BY p.grp_id + 0 FOR UPDATE
        ) AS c
    ) AS l;
    IF v_part IS NULL THEN
        RETURN;
    END IF;
    UPDATE queen.partition_consumers AS c
    SET ready_at = p_now + make_interval(secs => greatest(q.delayed_processing, q.window_buffer)), ver = c.ver + 1
    FROM unnest(v_part, v_grp, v_ver) AS u (part_id, grp_id, ver)
    JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[u.grp_id])
    JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
    WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver;
END $$;
COMMENT ON FUNCTION queen.wake IS 'Internal: makes the parked cursors of these partitions ready.';

-- A segment of p_n messages without some of them; p_out are their positions, ascending, and not all. What lies between
-- two of them is copied as it is: a message with the comma before it takes the same bytes wherever it stands.
CREATE OR REPLACE FUNCTION queen.cut_messages(
    p_n int, p_out int[], INOUT data bytea, INOUT ends bytea, INOUT ids bytea
)
LANGUAGE plpgsql IMMUTABLE
AS $$
#variable_conflict use_variable
BEGIN
    SELECT
        '['::bytea || string_agg(substr(data, r.begins + 2, r.bytes - 1), ','::bytea ORDER BY r.first) || ']'::bytea,
        string_agg(r.moved, ''::bytea ORDER BY r.first),
        string_agg(substr(ids, 16 * r.first + 1, 16 * (r.last - r.first + 1)), ''::bytea ORDER BY r.first)
    INTO data, ends, ids
    FROM (
        SELECT k.first, k.last, k.begins, k.bytes, (
            SELECT string_agg(int4send(queen.message_end(ends, i.pos) - k.begins + k.before::int), ''::bytea ORDER BY i.pos)
            FROM generate_series(k.first, k.last) AS i (pos)
        ) AS moved
        FROM (
            SELECT m.first, m.last, m.begins, m.bytes, sum(m.bytes) OVER (ORDER BY m.first) - m.bytes AS before
            FROM (
                SELECT g.first, g.last, queen.message_end(ends, g.first - 1) AS begins,
                    queen.message_end(ends, g.last) - queen.message_end(ends, g.first - 1) AS bytes
                FROM (
                    SELECT coalesce(lag(u.pos) OVER (ORDER BY u.pos), -1) + 1 AS first, u.pos - 1 AS last
                    FROM unnest(p_out || p_n) AS u (pos)
                ) AS g
                WHERE g.first <= g.last
            ) AS m
        ) AS k
    ) AS r;
END $$;
COMMENT ON FUNCTION queen.cut_messages IS 'Internal: a segment without some of its messages.';

-- What push_messages_v1 answered the first time, if the flush had been committed; else no row. A flush that stored
-- nothing but found duplicates leaves no trace and needs none: sending it again finds the same.
CREATE OR REPLACE FUNCTION queen.flushed(
    p_flush uuid, p_part bigint[], p_hash_part bigint[], p_hash_pos int[], p_hash uuid[]
) RETURNS TABLE (part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_part bigint[];
    v_first bigint[];
    v_last bigint[];
    v_at timestamptz[];
BEGIN
    SELECT array_agg(u.part_id), array_agg(s.first_off), array_agg(s.last_off), array_agg(s.created_at)
    INTO v_part, v_first, v_last, v_at
    FROM unnest(p_part) AS u (part_id)
    CROSS JOIN LATERAL queen.flushed_segment(p_flush, u.part_id) AS s;
    IF v_part IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT u.part_id, coalesce(s.first_off, 0), s.created_at, d.pos, d.off
    FROM unnest(p_part) AS u (part_id)
    LEFT JOIN unnest(v_part, v_first, v_at) AS s (part_id, first_off, created_at) ON s.part_id = u.part_id
    LEFT JOIN (
        SELECT h.part_id, array_agg(h.pos ORDER BY h.pos) AS pos, array_agg(t.off ORDER BY h.pos) AS off
        FROM unnest(p_hash_part, p_hash_pos, p_hash) AS h (part_id, pos, hash)
        JOIN queen.transaction_ids AS t ON t.part_id = ANY(ARRAY[h.part_id]) AND t.hash = h.hash
        LEFT JOIN unnest(v_part, v_first, v_last) AS o (part_id, first_off, last_off) ON o.part_id = h.part_id
        WHERE o.part_id IS NULL OR t.off NOT BETWEEN o.first_off AND o.last_off
        GROUP BY h.part_id
    ) AS d ON d.part_id = u.part_id;
END $$;
COMMENT ON FUNCTION queen.flushed IS
    'Internal: the answer of a batch that was committed although its first answer was lost.';

-- Walks back from the end of the log and stops at segments too old to be of a flush that is still being repeated. For a
-- flush that was spooled meanwhile, queen.replay_spool_v1 has set queen.sent_at.
CREATE OR REPLACE FUNCTION queen.flushed_segment(
    p_flush uuid, p_part bigint, OUT first_off bigint, OUT last_off bigint, OUT created_at timestamptz
) RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_segment record;
    v_oldest timestamptz := coalesce(nullif(current_setting('queen.sent_at', true), '')::timestamptz, queen.clock())
        - interval '1 hour';
BEGIN
    FOR v_segment IN
        SELECT s.last_off, s.n, s.cut, s.created_at, s.flush FROM queen.segments AS s
        WHERE s.part_id = p_part ORDER BY s.last_off DESC
    LOOP
        EXIT WHEN v_segment.created_at < v_oldest;
        IF v_segment.flush = p_flush AND v_segment.n > 0 THEN
            first_off := v_segment.last_off - v_segment.n - v_segment.cut + 1;
            last_off := v_segment.last_off;
            created_at := v_segment.created_at;
            RETURN NEXT;
            RETURN;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.flushed_segment IS
    'Internal: the segment that a batch wrote to a partition, unless it was sent more than an hour ago or '
    'queen.sent_at is set.';

-- What push_messages_v1, which sets how the statements are planned, does when a transaction id is there already:
-- inserts the ids that are new, and leaves the messages of the others out of the segments.
-- Returns:   partition, position and offset of each duplicate, and the segments without them.
CREATE OR REPLACE FUNCTION queen.leave_out_duplicates(
    p_part bigint[], p_first bigint[], p_hash_part bigint[], p_hash_pos int[], p_hash uuid[],
    OUT d_part bigint[], OUT d_pos int[], OUT d_off bigint[],
    INOUT p_n int[], INOUT p_data bytea[], INOUT p_ends bytea[], INOUT p_ids bytea[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(u.part_id), array_agg(u.pos), array_agg(t.off) INTO d_part, d_pos, d_off
    FROM unnest(p_hash_part, p_hash_pos, p_hash) AS u (part_id, pos, hash)
    JOIN queen.transaction_ids AS t ON t.part_id = ANY(ARRAY[u.part_id]) AND t.hash = u.hash;
    INSERT INTO queen.transaction_ids (part_id, hash, off)
    SELECT n.part_id, n.hash, h.first_off + n.pos - n.duplicates
    FROM (
        SELECT u.part_id, u.pos, u.hash, d.pos IS NULL AS is_new,
            count(d.pos) OVER (PARTITION BY u.part_id ORDER BY u.pos) AS duplicates
        FROM unnest(p_hash_part, p_hash_pos, p_hash) AS u (part_id, pos, hash)
        LEFT JOIN unnest(d_part, d_pos) AS d (part_id, pos) ON d.part_id = u.part_id AND d.pos = u.pos
    ) AS n
    JOIN unnest(p_part, p_first) AS h (part_id, first_off) ON h.part_id = n.part_id
    WHERE n.is_new
    ORDER BY n.part_id, n.hash;
    SELECT
        array_agg(k.n ORDER BY k.part_id), array_agg(k.data ORDER BY k.part_id), array_agg(k.ends ORDER BY k.part_id),
        array_agg(k.ids ORDER BY k.part_id)
    INTO p_n, p_data, p_ends, p_ids
    FROM (
        SELECT u.part_id, u.n - coalesce(cardinality(d.pos), 0) AS n, c.data, c.ends, c.ids
        FROM unnest(p_part, p_n, p_data, p_ends, p_ids) AS u (part_id, n, data, ends, ids)
        LEFT JOIN (
            SELECT o.part_id, array_agg(o.pos ORDER BY o.pos) AS pos
            FROM unnest(d_part, d_pos) AS o (part_id, pos) GROUP BY o.part_id
        ) AS d ON d.part_id = u.part_id
        CROSS JOIN LATERAL (
            SELECT u.data, u.ends, u.ids WHERE d.pos IS NULL OR cardinality(d.pos) = u.n
            UNION ALL
            SELECT m.* FROM queen.cut_messages(u.n, d.pos, u.data, u.ends, u.ids) AS m WHERE cardinality(d.pos) < u.n
        ) AS c
    ) AS k;
END $$;
COMMENT ON FUNCTION queen.leave_out_duplicates IS
    'Internal: stores the new transaction ids of a batch, and removes duplicates from its segments.';
