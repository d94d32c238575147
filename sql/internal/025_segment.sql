-- Reading a segment without decoding its JSON. queen/log/segment.py writes the format.

-- Where message p_pos of a segment (from 0) ends in its data: a big-endian number in ends.
CREATE OR REPLACE FUNCTION queen.message_end(p_ends bytea, p_pos int) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN p_pos < 0 THEN 0 ELSE
    (get_byte(p_ends, 4 * p_pos) << 24) | (get_byte(p_ends, 4 * p_pos + 1) << 16)
    | (get_byte(p_ends, 4 * p_pos + 2) << 8) | get_byte(p_ends, 4 * p_pos + 3)
END;
COMMENT ON FUNCTION queen.message_end IS 'Internal: where a message ends in the data of its segment.';

-- The JSON object of one message, as bytes.
CREATE OR REPLACE FUNCTION queen.message_at(p_data bytea, p_ends bytea, INOUT pos int, OUT message bytea)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT
        pos,
        substr(
            p_data, queen.message_end(p_ends, pos - 1) + 2,
            queen.message_end(p_ends, pos) - queen.message_end(p_ends, pos - 1) - 1
        );
END;
COMMENT ON FUNCTION queen.message_at IS 'Internal: the JSON object of one message of a segment.';

-- The fields of one message. Not with JSON operators on the whole object: they read the escapes of the payload too,
-- which may hold \u0000, and text cannot. The payload stands last, and `","payload":` cannot occur earlier, because a
-- quote inside a text is escaped.
CREATE OR REPLACE FUNCTION queen.message_fields(
    p_message bytea, OUT transaction_id text, OUT trace_id text, OUT producer_sub text, OUT payload json,
    OUT key_id text
)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    v_text text := convert_from(p_message, 'UTF8');
    v_end int := 0;
    v_fields json;
BEGIN
    IF NOT starts_with(v_text, '{"payload":') THEN
        v_end := strpos(v_text, '","payload":');
        v_fields := (left(v_text, v_end) || '}')::json;
        transaction_id := v_fields ->> 'transactionId';
        trace_id := v_fields ->> 'traceId';
        producer_sub := v_fields ->> 'producerSub';
        key_id := v_fields ->> 'keyId';
    END IF;
    v_end := v_end + length('{"payload":');
    payload := substr(v_text, v_end + 1, length(v_text) - v_end - 1)::json;
END $$;
COMMENT ON FUNCTION queen.message_fields IS 'Internal: the fields of one message of a segment.';

-- The headers of one message; null if it has none. They are a text that holds JSON, so that the end of the fields is found
-- as above.
CREATE OR REPLACE FUNCTION queen.message_headers(p_message bytea) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    v_text text := convert_from(p_message, 'UTF8');
BEGIN
    IF starts_with(v_text, '{"payload":') THEN
        RETURN NULL;
    END IF;
    RETURN ((left(v_text, strpos(v_text, '","payload":')) || '}')::json ->> 'headers')::jsonb;
END $$;
COMMENT ON FUNCTION queen.message_headers IS 'Internal: the headers of one message of a segment.';

-- Some messages of one segment, by their offsets, newest first. What is needed of the segment is fetched once: its
-- columns may be stored out of line, and each message would fetch them again.
CREATE OR REPLACE FUNCTION queen.segment_messages(p_part bigint, p_segment bigint, p_off bigint[])
RETURNS TABLE (
    off bigint, created_at timestamptz, transaction_id text, trace_id text, producer_sub text, payload json,
    key_id text, headers jsonb
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_segment record;
BEGIN
    SELECT e.first_off, e.created_at, e.ends, b.begins, substr(e.data, b.begins + 1, b.upto - b.begins) AS data
    INTO v_segment
    FROM (
        SELECT s.last_off - s.n + 1 AS first_off, s.created_at, substr(s.ends, 1) AS ends, s.data, w.low, w.high
        FROM queen.segments AS s
        CROSS JOIN LATERAL (
            SELECT min(u.off) AS low, max(u.off) AS high FROM unnest(p_off) AS u (off) WHERE u.off > s.last_off - s.n
        ) AS w
        WHERE s.part_id = p_part AND s.last_off = p_segment
        OFFSET 0
    ) AS e
    CROSS JOIN LATERAL (
        SELECT queen.message_end(e.ends, (e.low - e.first_off - 1)::int) AS begins,
            queen.message_end(e.ends, (e.high - e.first_off)::int) AS upto
        OFFSET 0
    ) AS b;
    RETURN QUERY
    SELECT u.off, v_segment.created_at, coalesce(f.transaction_id, queen.message_uuid(p_part, u.off)::text), f.trace_id,
        f.producer_sub, f.payload, f.key_id, queen.message_headers(b.message)
    FROM unnest(p_off) AS u (off)
    CROSS JOIN LATERAL (SELECT queen.message_end(v_segment.ends, (u.off - v_segment.first_off - 1)::int) AS ends) AS e
    CROSS JOIN LATERAL (
        SELECT substr(
            v_segment.data, e.ends - v_segment.begins + 2,
            queen.message_end(v_segment.ends, (u.off - v_segment.first_off)::int) - e.ends - 1) AS message
        OFFSET 0
    ) AS b
    CROSS JOIN LATERAL queen.message_fields(b.message) AS f
    WHERE u.off >= v_segment.first_off
    ORDER BY u.off DESC;
END $$;
COMMENT ON FUNCTION queen.segment_messages IS 'Internal: the fields of some messages of one segment.';

-- The bytes of messages, each named with its segment (null: it is gone, and left out). The ends of a segment are
-- fetched once.
CREATE OR REPLACE FUNCTION queen.message_sizes(p_part bigint[], p_segment bigint[], p_off bigint[])
RETURNS TABLE (part_id bigint, off bigint, size int)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT e.part_id, o.off,
        queen.message_end(e.ends, (o.off - e.first_off)::int) - queen.message_end(e.ends, (o.off - e.first_off - 1)::int)
    FROM (
        SELECT u.part_id, s.last_off - s.n + 1 AS first_off, substr(s.ends, 1) AS ends, u.offsets
        FROM (
            SELECT l.part_id, l.last_off, array_agg(DISTINCT l.off) AS offsets
            FROM unnest(p_part, p_segment, p_off) AS l (part_id, last_off, off) GROUP BY l.part_id, l.last_off
        ) AS u
        JOIN queen.segments AS s ON s.part_id = u.part_id AND s.last_off = u.last_off
        OFFSET 0
    ) AS e
    CROSS JOIN LATERAL unnest(e.offsets) AS o (off);
END $$;
COMMENT ON FUNCTION queen.message_sizes IS 'Internal: the bytes of messages.';
