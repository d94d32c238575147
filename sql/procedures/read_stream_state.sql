-- Purpose:   reads the state of a stream for a partition.
-- Arguments: p_stream, p_part, p_keys (null: all), p_prefix of the keys (null: any), p_ripe: only windows that are over at
--            this time, in milliseconds since 1970 (null: all rows); p_bytes of keys and values: rows beyond that are left
--            out, but not the first row
-- Returns:   one row per key, in their order, then one with a null key if some were left out. A worker that asks for
--            windows that are over wants to close them, so the answer leaves out what queen.cycle_stream_v1 would
--            refuse: see queen.is_unsettled.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION queen.read_stream_state_v1(
    p_stream bigint, p_part bigint, p_keys text[], p_prefix text, p_ripe float8, p_bytes bigint
) RETURNS TABLE (key text, value json, updated_at timestamptz)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET cursor_tuple_fraction = 1
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_bytes bigint := 0;
    v_rows refcursor;
BEGIN
    IF p_ripe IS NOT NULL AND EXISTS (
        SELECT 1 FROM queen.stream_cycles AS y
        WHERE y.part_id = p_part AND y.stream_id = p_stream AND queen.is_leased(p_part, y.grp_id, v_now)
    ) THEN
        RETURN;
    END IF;
    -- Each by an index of its own.
    IF p_keys IS NOT NULL THEN
        OPEN v_rows FOR
        SELECT s.key, s.value, s.updated_at
        FROM (SELECT DISTINCT n COLLATE "C" AS key FROM unnest(p_keys) AS n) AS u
        JOIN queen.stream_state AS s ON s.part_id = ANY(ARRAY[p_part]) AND s.stream_id = p_stream AND s.key = u.key
        WHERE starts_with(s.key, coalesce(p_prefix, '')) AND (p_ripe IS NULL
            OR (s.window_end <= p_ripe AND NOT queen.is_unsettled(s.updated_at, s.window_end, v_now)))
        ORDER BY s.key;
    ELSIF p_ripe IS NOT NULL THEN
        OPEN v_rows FOR
        SELECT s.key, s.value, s.updated_at FROM queen.stream_state AS s
        WHERE s.stream_id = p_stream AND s.part_id = p_part AND s.window_end <= p_ripe
            AND starts_with(s.key, coalesce(p_prefix, '')) AND NOT queen.is_unsettled(s.updated_at, s.window_end, v_now)
        ORDER BY s.key;
    ELSE
        OPEN v_rows FOR
        SELECT s.key, s.value, s.updated_at FROM queen.stream_state AS s
        WHERE s.part_id = p_part AND s.stream_id = p_stream AND s.key >= coalesce(p_prefix, '') ORDER BY s.key;
    END IF;
    LOOP
        FETCH v_rows INTO key, value, updated_at;
        EXIT WHEN NOT FOUND OR NOT starts_with(key, coalesce(p_prefix, ''));
        IF v_bytes > 0 AND v_bytes + octet_length(key) + octet_length(value::text) > p_bytes THEN
            RETURN QUERY SELECT null::text, null::json, null::timestamptz;
            EXIT;
        END IF;
        v_bytes := v_bytes + octet_length(key) + octet_length(value::text);
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.read_stream_state_v1 IS 'The state of a stream in a partition.';

-- The registration of a stream, for reads.
CREATE OR REPLACE FUNCTION queen.stream_exists_v1(p_stream bigint) RETURNS bool
LANGUAGE sql STABLE
RETURN EXISTS (SELECT 1 FROM queen.streams AS s WHERE s.id = p_stream);
COMMENT ON FUNCTION queen.stream_exists_v1 IS 'Whether a stream exists.';
