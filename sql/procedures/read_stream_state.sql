-- Purpose:   what a stream remembers of a partition.
-- Arguments: p_stream, p_part, p_keys (null: all), p_prefix of the keys (null: any), p_ripe: only windows that are over at
--            this time, in milliseconds since 1970 (null: all rows); p_bytes of keys and values: what follows is left
--            out, but not the first row
-- Returns:   one row a key, in their order; behind them one with a null key if some were left out. Who asks for windows
--            that are over wants to flush them, so that nothing is answered that queen.cycle_stream_v1 would refuse: see
--            queen.is_unsettled.
CREATE OR REPLACE FUNCTION queen.read_stream_state_v1(
    p_stream bigint, p_part bigint, p_keys text[], p_prefix text, p_ripe float8, p_bytes bigint
) RETURNS TABLE (key text, value json, updated_at timestamptz)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_bytes bigint := 0;
BEGIN
    IF p_ripe IS NOT NULL AND EXISTS (
        SELECT 1 FROM queen.stream_cycles AS y
        WHERE y.part_id = p_part AND y.stream_id = p_stream AND queen.is_leased(p_part, y.grp_id, v_now)
    ) THEN
        RETURN;
    END IF;
    FOR key, value, updated_at IN
        SELECT s.key, s.value, s.updated_at FROM queen.stream_state AS s
        WHERE s.part_id = p_part AND s.stream_id = p_stream
            AND (p_keys IS NULL OR s.key = ANY(p_keys)) AND (p_prefix IS NULL OR starts_with(s.key, p_prefix))
            AND (p_ripe IS NULL OR (s.window_end <= p_ripe AND NOT queen.is_unsettled(s.updated_at, s.window_end, v_now)))
        ORDER BY s.key
    LOOP
        IF v_bytes > 0 AND v_bytes + octet_length(key) + octet_length(value::text) > p_bytes THEN
            RETURN QUERY SELECT null::text, null::json, null::timestamptz;
            RETURN;
        END IF;
        v_bytes := v_bytes + octet_length(key) + octet_length(value::text);
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.read_stream_state_v1 IS 'What a stream remembers of a partition.';

-- The registration of a stream, for those who only read.
CREATE OR REPLACE FUNCTION queen.stream_exists_v1(p_stream bigint) RETURNS bool
LANGUAGE sql STABLE
RETURN EXISTS (SELECT 1 FROM queen.streams AS s WHERE s.id = p_stream);
COMMENT ON FUNCTION queen.stream_exists_v1 IS 'Whether there is such a stream.';
