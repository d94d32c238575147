-- Purpose:   registers a stream, or finds it by its name.
-- Arguments: p_name, p_source, p_sink (null: none), p_hash of the chain of operators, p_reset: forget the state and take the
--            new chain
--            p_step: rows of the state that a call forgets
-- Returns:   stream_id; fresh: it is new; conflict: the hash differs and nothing was changed; more: a part of the state
--            is deleted, call again. Until all is deleted, no hash fits: a reset that was interrupted has to be
--            requested again.
-- Locks:     the row of the stream, which cycles hold FOR KEY SHARE.  Writes: streams, stream_state, stream_cycles.
CREATE OR REPLACE FUNCTION queen.register_stream_v1(
    p_name text, p_source text, p_sink text, p_hash text, p_reset bool, p_step int,
    OUT stream_id bigint, OUT fresh bool, OUT conflict bool, OUT more bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_hash text;
    v_forgotten int := 0;
BEGIN
    INSERT INTO queen.streams AS s (name, source_queue, sink_queue, config_hash, created_at, registered_at)
    VALUES (p_name, p_source, p_sink, p_hash, v_now, v_now)
    ON CONFLICT (name) DO NOTHING
    RETURNING s.id INTO stream_id;
    fresh := stream_id IS NOT NULL;
    conflict := false;
    more := false;
    IF fresh THEN
        RETURN;
    END IF;
    SELECT s.id, s.config_hash INTO stream_id, v_hash FROM queen.streams AS s WHERE s.name = p_name FOR UPDATE;
    conflict := v_hash <> p_hash AND NOT p_reset;
    IF conflict THEN
        RETURN;
    END IF;
    IF p_reset THEN
        DELETE FROM queen.stream_state AS t
        WHERE t.ctid = ANY(ARRAY(
            SELECT l.ctid FROM queen.stream_state AS l WHERE l.stream_id = register_stream_v1.stream_id LIMIT p_step));
        GET DIAGNOSTICS v_forgotten = ROW_COUNT;
    END IF;
    more := v_forgotten = p_step;
    UPDATE queen.streams AS s
    SET source_queue = p_source, sink_queue = p_sink, config_hash = CASE WHEN more THEN '' ELSE p_hash END, registered_at = v_now
    WHERE s.id = register_stream_v1.stream_id;
END $$;
COMMENT ON FUNCTION queen.register_stream_v1 IS 'Creates a stream, or finds it by its name.';

-- Purpose:   the same for one of several databases, after the first one has given the number.
-- Arguments: p_stream: the number; the others as of queen.register_stream_v1
CREATE OR REPLACE FUNCTION queen.register_stream_as_v1(
    p_stream bigint, p_name text, p_source text, p_sink text, p_hash text, p_reset bool, p_step int,
    OUT stream_id bigint, OUT fresh bool, OUT conflict bool, OUT more bool
)
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen.streams (id, name, source_queue, sink_queue, config_hash, created_at, registered_at)
    OVERRIDING SYSTEM VALUE
    VALUES (p_stream, p_name, p_source, p_sink, p_hash, queen.clock(), queen.clock())
    ON CONFLICT DO NOTHING;
    SELECT r.stream_id, r.fresh, r.conflict, r.more INTO stream_id, fresh, conflict, more
    FROM queen.register_stream_v1(p_name, p_source, p_sink, p_hash, p_reset, p_step) AS r;
END $$;
COMMENT ON FUNCTION queen.register_stream_as_v1 IS 'Creates a stream with a given number, or finds it by its name.';
