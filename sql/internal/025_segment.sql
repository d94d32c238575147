-- Reading a segment without decoding its JSON. queen/core/segment.py writes the format.

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

-- The fields of one message. Not with JSON operators on the whole object: they read the escapes of the payload too, which
-- may hold \u0000, and text cannot. The payload stands last, and `","payload":` cannot occur earlier, because a quote
-- inside a text is escaped.
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
