-- Purpose:   a page of messages, newest first, with what became of each.
-- Arguments: p_queue, p_partition, p_namespace, p_task  null matches any
--            p_status   pending, processing, completed or dead_letter; null: any. With a status only the newest p_scan
--                       messages that match the rest are looked at
--            p_from, p_to   created in that time, both included
-- Returns:   one row a message. done of the groups' cursors have completed it; queue_mode: what became of it in queue mode.
-- Reads:     for a time that includes now the log ends of the partitions, and of the newest of them the newest segments; for
--            a time that has passed the segments of its end, by segments_created_at.
CREATE OR REPLACE FUNCTION queen.list_messages_v1(
    p_queue text, p_partition text, p_namespace text, p_task text, p_status text, p_from timestamptz, p_to timestamptz,
    p_limit int, p_offset int, p_scan int
) RETURNS TABLE (
    part_id bigint, off bigint, queue text, partition text, namespace text, task text, priority int,
    created_at timestamptz, transaction_id text, trace_id text, producer_sub text, payload text, status text,
    queue_mode text, done bigint, groups bigint, lease_ends timestamptz, key_id text
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_queues bigint[];
    v_parts bigint[];
    v_most int := CASE WHEN p_status IS NULL THEN p_limit + p_offset ELSE p_scan END;
    v_oldest timestamptz;
    v_length interval;
    s_part bigint[];
    s_last bigint[];
    m_part bigint[];
    m_last bigint[];
    m_off bigint[];
BEGIN
    -- Nothing is older, and the search for what is must end.
    p_from := greatest(p_from, '1970-01-01T00:00:00Z');
    SELECT array_agg(q.id) INTO v_queues FROM queen.queues AS q
    WHERE (p_queue IS NULL OR q.name = p_queue) AND (p_namespace IS NULL OR q.namespace = p_namespace)
        AND (p_task IS NULL OR q.task = p_task);
    -- The segments that hold the newest messages: at least one message each, so as many as messages are enough. Not those that
    -- only say where a log ends.
    IF p_to >= queen.clock() THEN
        -- They lie in the partitions that were written to last, and are no older than the last write to all of these.
        SELECT array_agg(h.part_id), CASE WHEN count(*) = v_most THEN greatest(min(h.last_at), p_from) ELSE p_from END
        INTO v_parts, v_oldest
        FROM (
            SELECT l.part_id, l.created_at AS last_at
            FROM queen.partitions AS p
            CROSS JOIN LATERAL (
                SELECT s.part_id, s.n, s.created_at FROM queen.segments AS s
                WHERE s.part_id = p.id ORDER BY s.last_off DESC LIMIT 1
            ) AS l
            WHERE p.queue_id = ANY(v_queues) AND (p_partition IS NULL OR p.name = p_partition)
                AND l.n > 0 AND l.created_at >= p_from
            ORDER BY l.created_at DESC, l.part_id DESC LIMIT v_most
        ) AS h;
        SELECT array_agg(n.part_id), array_agg(n.last_off) INTO s_part, s_last
        FROM (
            SELECT l.part_id, l.last_off
            FROM unnest(v_parts) AS u (part_id)
            CROSS JOIN LATERAL (
                SELECT s.part_id, s.last_off, s.created_at FROM queen.segments AS s
                WHERE s.part_id = u.part_id AND s.n > 0 AND s.last_off > coalesce((
                    SELECT o.last_off FROM queen.segments AS o
                    WHERE o.part_id = u.part_id AND o.created_at < v_oldest ORDER BY o.last_off DESC LIMIT 1
                ), -1)
                ORDER BY s.last_off DESC LIMIT v_most
            ) AS l
            ORDER BY l.created_at DESC, l.part_id DESC, l.last_off DESC LIMIT v_most
        ) AS n;
    ELSE
        -- They are looked for in a time that becomes longer until it holds enough of them.
        v_length := '1 second';
        LOOP
            v_oldest := greatest(p_to - v_length, p_from);
            SELECT array_agg(n.part_id), array_agg(n.last_off) INTO s_part, s_last
            FROM (
                SELECT l.part_id, l.last_off
                FROM queen.segments AS l JOIN queen.partitions AS p ON p.id = l.part_id
                WHERE l.created_at BETWEEN v_oldest AND p_to AND l.n > 0
                    AND p.queue_id = ANY(v_queues) AND (p_partition IS NULL OR p.name = p_partition)
                ORDER BY l.created_at DESC, l.part_id DESC, l.last_off DESC LIMIT v_most
            ) AS n;
            EXIT WHEN v_oldest = p_from OR cardinality(s_part) = v_most;
            v_length := v_length * 8;
        END LOOP;
    END IF;

    SELECT array_agg(e.part_id), array_agg(e.last_off), array_agg(e.off) INTO m_part, m_last, m_off
    FROM (
        SELECT u.part_id, u.last_off, o.off
        FROM unnest(s_part, s_last) AS u (part_id, last_off)
        JOIN queen.segments AS s ON s.part_id = u.part_id AND s.last_off = u.last_off
        LEFT JOIN queen.deleted_messages AS d ON d.part_id = u.part_id
        CROSS JOIN LATERAL generate_series(s.last_off - s.n + 1, s.last_off) AS o (off)
        WHERE NOT coalesce(d.offsets @> o.off, false)
        ORDER BY s.created_at DESC, u.part_id DESC, o.off DESC
        LIMIT CASE WHEN p_status IS NULL THEN p_limit ELSE v_most END
        OFFSET CASE WHEN p_status IS NULL THEN p_offset ELSE 0 END
    ) AS e;

    RETURN QUERY
    SELECT
        m.part_id, m.off, q.name, p.name, q.namespace, q.task, q.priority, s.created_at,
        coalesce(f.transaction_id, queen.message_uuid(m.part_id, m.off)::text), f.trace_id, f.producer_sub,
        f.payload::text, m.status, m.queue_mode, m.done, m.groups, m.lease_ends, f.key_id
    FROM (
        SELECT u.part_id, u.last_off, u.off, u.ord, a.status, a.queue_mode, a.done, a.groups, a.lease_ends
        FROM unnest(m_part, m_last, m_off) WITH ORDINALITY AS u (part_id, last_off, off, ord)
        JOIN queen.message_states(m_part, m_off) AS a ON a.part_id = u.part_id AND a.off = u.off
        WHERE p_status IS NULL OR a.status = p_status
        ORDER BY u.ord LIMIT p_limit OFFSET CASE WHEN p_status IS NULL THEN 0 ELSE p_offset END
    ) AS m
    JOIN queen.segments AS s ON s.part_id = m.part_id AND s.last_off = m.last_off
    JOIN queen.partitions AS p ON p.id = m.part_id
    JOIN queen.queues AS q ON q.id = p.queue_id
    CROSS JOIN LATERAL queen.message_at(s.data, s.ends, (m.off - s.last_off + s.n - 1)::int) AS b
    CROSS JOIN LATERAL queen.message_fields(b.message) AS f
    ORDER BY m.ord;
END $$;
COMMENT ON FUNCTION queen.list_messages_v1 IS 'A page of messages, newest first, with what became of each.';
