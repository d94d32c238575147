-- The last offset created at or before a time, or the one before the oldest kept message. created_at never falls within
-- a partition, so this is a binary search: a few look-ups, even in a long log.
CREATE OR REPLACE FUNCTION queen.last_before(p_part bigint, p_since timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_segment record;
    v_low bigint;      -- the end of a segment that is old enough
    v_high bigint;     -- segments that end above it are too young
    v_middle bigint;
BEGIN
    SELECT s.last_off, s.n, s.created_at INTO v_segment
    FROM queen.segments AS s WHERE s.part_id = p_part ORDER BY s.last_off LIMIT 1;
    IF NOT FOUND THEN
        RETURN (SELECT e.next_off - 1 FROM queen.log_ends AS e WHERE e.part_id = p_part);
    ELSIF v_segment.created_at > p_since THEN
        RETURN v_segment.last_off - v_segment.n;
    END IF;
    v_low := v_segment.last_off;
    SELECT s.last_off, s.n, s.created_at INTO v_segment
    FROM queen.segments AS s WHERE s.part_id = p_part ORDER BY s.last_off DESC LIMIT 1;
    IF v_segment.created_at <= p_since THEN
        RETURN v_segment.last_off;
    END IF;
    v_high := v_segment.last_off - greatest(v_segment.n, 1);
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high) / 2;
        SELECT s.last_off, s.n, s.created_at INTO v_segment
        FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off > v_middle ORDER BY s.last_off LIMIT 1;
        IF v_segment.created_at <= p_since THEN
            v_low := v_segment.last_off;
        ELSE
            v_high := least(v_middle, v_segment.last_off - v_segment.n);
        END IF;
    END LOOP;
    RETURN v_low;
END $$;
COMMENT ON FUNCTION queen.last_before IS 'Internal: the cursor for a group that gets messages created after a time.';
