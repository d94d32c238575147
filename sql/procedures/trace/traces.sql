-- Purpose:   records a trace of a message.
-- Arguments: p_part; p_off and p_hash as in get_message_v1;  p_names: under which it is found, distinct
-- Returns:   its number, or null: there is no such message.
-- Writes:    traces, trace_names.
CREATE OR REPLACE FUNCTION queen.record_trace_v1(
    p_part bigint, p_off bigint, p_hash uuid, p_group text, p_event text, p_data json, p_worker text, p_names text[]
) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_off bigint;
    v_queue bigint;
    v_id bigint;
BEGIN
    -- The queue cannot be deleted before the trace is there to be deleted with it.
    SELECT p.queue_id INTO v_queue FROM queen.partitions AS p WHERE p.id = p_part;
    PERFORM 1 FROM queen.queues AS q WHERE q.id = v_queue FOR SHARE;
    v_off := queen.find_message(p_part, p_off, p_hash);
    IF v_off IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO queen.traces (queue_id, part_id, off, consumer_group, event_type, data, worker, created_at)
    VALUES (v_queue, p_part, v_off, p_group, p_event, p_data, p_worker, queen.clock()) RETURNING id INTO v_id;
    INSERT INTO queen.trace_names (name, trace_id) SELECT n.name, v_id FROM unnest(p_names) AS n (name);
    RETURN v_id;
END $$;
COMMENT ON FUNCTION queen.record_trace_v1 IS 'Records a trace of a message.';

-- Purpose:   traces of one message (p_part), or of one name, oldest first.
-- Returns:   one row a trace, with its message; payload is null when that is gone.
CREATE OR REPLACE FUNCTION queen.list_traces_v1(
    p_part bigint, p_off bigint, p_hash uuid, p_name text, p_limit int, p_offset int
) RETURNS TABLE (
    id bigint, event_type text, data text, consumer_group text, worker text, created_at timestamptz, names text[],
    part_id bigint, off bigint, queue text, partition text, transaction_id text, payload text, key_id text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_off bigint := queen.find_message(p_part, p_off, p_hash);
BEGIN
    RETURN QUERY
    SELECT
        t.id, t.event_type, t.data::text, t.consumer_group, t.worker, t.created_at,
        (SELECT array_agg(n.name ORDER BY n.name) FROM queen.trace_names AS n WHERE n.trace_id = t.id),
        t.part_id, t.off, q.name, p.name,
        coalesce(m.transaction_id, queen.message_uuid(t.part_id, t.off)::text), m.payload::text, m.key_id
    FROM (
        SELECT l.* FROM queen.traces AS l WHERE p_name IS NULL AND l.part_id = p_part AND l.off = v_off
        UNION ALL
        SELECT l.* FROM queen.trace_names AS n JOIN queen.traces AS l ON l.id = n.trace_id WHERE n.name = p_name
        ORDER BY id LIMIT p_limit OFFSET p_offset
    ) AS t
    JOIN queen.partitions AS p ON p.id = t.part_id
    JOIN queen.queues AS q ON q.id = p.queue_id
    LEFT JOIN LATERAL (
        SELECT f.transaction_id, f.payload, f.key_id
        FROM (
            SELECT s.* FROM queen.segments AS s WHERE s.part_id = t.part_id AND s.last_off >= t.off ORDER BY s.last_off LIMIT 1
        ) AS s
        CROSS JOIN LATERAL queen.message_at(s.data, s.ends, (t.off - s.last_off + s.n - 1)::int) AS b
        CROSS JOIN LATERAL queen.message_fields(b.message) AS f
        WHERE s.last_off - s.n < t.off
    ) AS m ON true
    ORDER BY t.id;
END $$;
COMMENT ON FUNCTION queen.list_traces_v1 IS 'Traces of one message or of one name, oldest first.';

-- Purpose:   names of traces, latest first, with their traces and messages.
CREATE OR REPLACE FUNCTION queen.list_trace_names_v1(p_limit int, p_offset int)
RETURNS TABLE (name text, traces bigint, messages bigint, last_seen timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT n.name, count(*), count(DISTINCT queen.message_uuid(t.part_id, t.off)), max(t.created_at)
    FROM queen.trace_names AS n JOIN queen.traces AS t ON t.id = n.trace_id
    GROUP BY n.name ORDER BY max(t.id) DESC LIMIT p_limit OFFSET p_offset;
END;
COMMENT ON FUNCTION queen.list_trace_names_v1 IS 'Names of traces, latest first.';

-- Purpose:   how many traces a name has; without a name, how many names there are.
CREATE OR REPLACE FUNCTION queen.count_traces_v1(p_name text) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN p_name IS NULL
        THEN (SELECT count(DISTINCT n.name) FROM queen.trace_names AS n)
        ELSE (SELECT count(*) FROM queen.trace_names AS n WHERE n.name = p_name) END;
END;
COMMENT ON FUNCTION queen.count_traces_v1 IS 'How many traces a name has, or how many names there are.';
