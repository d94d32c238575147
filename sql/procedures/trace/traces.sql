-- Purpose:   records a trace of a message.
-- Arguments: p_part; p_off and p_hash as in get_message_v1;  p_names: under which it is found, distinct
-- Returns:   its number, or null: there is no such message.
-- Writes:    traces, trace_names.
CREATE OR REPLACE FUNCTION queen.record_trace_v1(
    p_part bigint, p_off bigint, p_hash uuid, p_group text, p_event text, p_data json, p_worker text, p_names text[]
) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_off bigint;
    v_queue bigint;
    v_id bigint;
BEGIN
    -- The queue cannot be deleted before the trace exists, so that it is deleted with it.
    SELECT p.queue_id INTO v_queue FROM queen.partitions AS p WHERE p.id = p_part;
    PERFORM 1 FROM queen.queues AS q WHERE q.id = v_queue FOR SHARE;
    v_off := queen.find_message(p_part, p_off, p_hash);
    -- What a deleted queue has held may stand there a while longer.
    IF v_off IS NULL OR NOT EXISTS (SELECT 1 FROM queen.partitions AS p WHERE p.id = p_part) THEN
        RETURN NULL;
    END IF;
    INSERT INTO queen.traces (queue_id, part_id, off, consumer_group, event_type, data, worker, created_at)
    VALUES (v_queue, p_part, v_off, p_group, p_event, p_data, p_worker, queen.clock()) RETURNING id INTO v_id;
    INSERT INTO queen.trace_names (name, trace_id) SELECT n.name, v_id FROM unnest(p_names) AS n (name);
    RETURN v_id;
END $$;
COMMENT ON FUNCTION queen.record_trace_v1 IS 'Records a trace of a message.';

-- Purpose:   traces of one message (p_part), or of one name, oldest first: a page.
-- Arguments: p_bytes  of data and payloads: the page ends before it has more, and has at least one
-- Returns:   one row per trace, with its message; payload is null when that is gone, or was not asked for (one
--            message).
CREATE OR REPLACE FUNCTION queen.list_traces_v1(
    p_part bigint, p_off bigint, p_hash uuid, p_name text, p_limit int, p_offset int, p_bytes int
) RETURNS TABLE (
    id bigint, event_type text, data text, consumer_group text, worker text, created_at timestamptz, names text[],
    part_id bigint, off bigint, queue text, partition text, transaction_id text, payload text, key_id text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_off bigint;
    t_id bigint[];           -- the traces, one array a column
    t_part bigint[];
    t_off bigint[];
    t_segment bigint[];      -- where their messages are (null: gone, or not asked for)
BEGIN
    IF p_name IS NULL THEN
        v_off := queen.find_message(p_part, p_off, p_hash);
        v_ids := ARRAY(
            SELECT t.id FROM queen.traces AS t WHERE t.part_id = p_part AND t.off = v_off
            ORDER BY t.id LIMIT p_limit OFFSET p_offset);
    ELSE
        v_ids := ARRAY(
            SELECT n.trace_id FROM queen.trace_names AS n WHERE n.name = p_name
            ORDER BY n.trace_id LIMIT p_limit OFFSET p_offset);
    END IF;
    SELECT array_agg(u.id ORDER BY u.id), array_agg(u.part_id ORDER BY u.id), array_agg(u.off ORDER BY u.id),
        array_agg(u.last_off ORDER BY u.id)
    INTO t_id, t_part, t_off, t_segment
    FROM (
        SELECT t.id, t.part_id, t.off, s.last_off
        FROM queen.traces AS t
        JOIN queen.partitions AS p ON p.id = t.part_id
        LEFT JOIN LATERAL (
            SELECT CASE WHEN l.last_off - l.n < t.off THEN l.last_off END AS last_off FROM queen.segments AS l
            WHERE p_name IS NOT NULL AND l.part_id = t.part_id AND l.last_off >= t.off ORDER BY l.last_off LIMIT 1
        ) AS s ON true
        WHERE t.id = ANY(v_ids)
    ) AS u;
    -- As many as have p_bytes together, or the first.
    SELECT array_agg(c.id ORDER BY c.id), array_agg(c.part_id ORDER BY c.id), array_agg(c.off ORDER BY c.id),
        array_agg(c.last_off ORDER BY c.id)
    INTO t_id, t_part, t_off, t_segment
    FROM (
        SELECT u.id, u.part_id, u.off, u.last_off, u.ord,
            sum(octet_length(t.data::text) + coalesce(z.size, 0)) OVER (ORDER BY u.ord ROWS UNBOUNDED PRECEDING) AS bytes
        FROM unnest(t_id, t_part, t_off, t_segment) WITH ORDINALITY AS u (id, part_id, off, last_off, ord)
        JOIN queen.traces AS t ON t.id = u.id
        LEFT JOIN queen.message_sizes(t_part, t_segment, t_off) AS z ON z.part_id = u.part_id AND z.off = u.off
    ) AS c
    WHERE c.ord = 1 OR c.bytes <= p_bytes;
    RETURN QUERY
    SELECT
        t.id, t.event_type, t.data::text, t.consumer_group, t.worker, t.created_at,
        (SELECT array_agg(n.name ORDER BY n.name) FROM queen.trace_names AS n WHERE n.trace_id = t.id),
        t.part_id, t.off, q.name, p.name, coalesce(m.transaction_id, queen.message_uuid(t.part_id, t.off)::text),
        m.payload::text, m.key_id
    FROM unnest(t_id) AS u (id)
    JOIN queen.traces AS t ON t.id = u.id
    JOIN queen.partitions AS p ON p.id = t.part_id
    JOIN queen.queues AS q ON q.id = p.queue_id
    LEFT JOIN (
        SELECT s.part_id, f.off, f.transaction_id, f.payload, f.key_id
        FROM (
            SELECT l.part_id, l.last_off, array_agg(DISTINCT l.off) AS offsets
            FROM unnest(t_part, t_segment, t_off) AS l (part_id, last_off, off)
            WHERE l.last_off IS NOT NULL GROUP BY l.part_id, l.last_off
        ) AS s
        CROSS JOIN LATERAL queen.segment_messages(s.part_id, s.last_off, s.offsets) AS f
    ) AS m ON m.part_id = t.part_id AND m.off = t.off
    ORDER BY t.id;
END $$;
COMMENT ON FUNCTION queen.list_traces_v1 IS 'Traces of one message or of one name, oldest first.';

-- Purpose:   names of traces, latest first, with their traces and messages: a page of those that stand among the newest
--            p_scan. Traces and messages of a name are counted up to p_count.
-- Arguments: p_search  what the name holds (null: any)
CREATE OR REPLACE FUNCTION queen.list_trace_names_v1(
    p_search text, p_scan int, p_count int, p_limit int, p_offset int
) RETURNS TABLE (name text, traces bigint, messages bigint, last_seen timestamptz)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.name, c.traces, c.messages, l.created_at
    FROM (
        SELECT n.name, max(n.trace_id) AS last_id
        FROM (SELECT w.name, w.trace_id FROM queen.trace_names AS w ORDER BY w.trace_id DESC LIMIT p_scan) AS n
        WHERE p_search IS NULL OR strpos(lower(n.name), lower(p_search)) > 0
        GROUP BY n.name ORDER BY max(n.trace_id) DESC, n.name LIMIT p_limit OFFSET p_offset
    ) AS u
    JOIN queen.traces AS l ON l.id = u.last_id
    CROSS JOIN LATERAL (
        SELECT count(*) AS traces, count(DISTINCT (t.part_id, t.off)) AS messages
        FROM (SELECT w.trace_id FROM queen.trace_names AS w WHERE w.name = u.name ORDER BY w.trace_id DESC LIMIT p_count) AS n
        JOIN queen.traces AS t ON t.id = n.trace_id
    ) AS c
    ORDER BY u.last_id DESC, u.name;
END $$;
COMMENT ON FUNCTION queen.list_trace_names_v1 IS 'Trace names, latest first.';

-- Purpose:   how many names a list of them has.
-- Arguments: as above
CREATE OR REPLACE FUNCTION queen.count_trace_names_v1(p_search text, p_scan int) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (
        SELECT count(DISTINCT n.name)
        FROM (SELECT w.name FROM queen.trace_names AS w ORDER BY w.trace_id DESC LIMIT p_scan) AS n
        WHERE p_search IS NULL OR strpos(lower(n.name), lower(p_search)) > 0);
END $$;
COMMENT ON FUNCTION queen.count_trace_names_v1 IS 'How many names of traces a list has.';

-- Purpose:   how many traces a name has, up to p_scan.
CREATE OR REPLACE FUNCTION queen.count_traces_v1(p_name text, p_scan int) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (SELECT count(*) FROM (SELECT 1 FROM queen.trace_names AS n WHERE n.name = p_name LIMIT p_scan) AS u);
END $$;
COMMENT ON FUNCTION queen.count_traces_v1 IS 'The number of traces with a name.';

-- Purpose:   deletes traces of a message, at most p_step.
-- Arguments: p_part; p_off and p_hash as in get_message_v1
-- Returns:   how many; fewer than p_step: that was all.
CREATE OR REPLACE FUNCTION queen.delete_traces_v1(p_part bigint, p_off bigint, p_hash uuid, p_step int) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_off bigint := queen.find_message(p_part, p_off, p_hash);
    v_deleted bigint;
BEGIN
    DELETE FROM queen.traces AS t
    WHERE t.id = ANY(ARRAY(
        SELECT l.id FROM queen.traces AS l WHERE l.part_id = p_part AND l.off = v_off ORDER BY l.id LIMIT p_step));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END $$;
COMMENT ON FUNCTION queen.delete_traces_v1 IS 'Deletes traces of a message, a bounded number at a time.';
