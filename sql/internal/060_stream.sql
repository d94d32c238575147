-- When a worker of a stream may flush windows: emit what it has read of the state, and delete that, without an ack that
-- would prove that the partition is its own.

-- Whether somebody holds a lease on a cursor: it may have read the state already and is about to write it.
CREATE OR REPLACE FUNCTION queen.is_leased(p_part bigint, p_grp bigint, p_now timestamptz) RETURNS bool
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN coalesce((
        SELECT c.lease IS NOT NULL AND c.ready_at > p_now AND c.ready_at < 'infinity'
        FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1
    ), false);
END $$;
COMMENT ON FUNCTION queen.is_leased IS 'Internal: whether a lease lives on a cursor.';

-- Whether a row of the state may have changed since the worker that flushes it has read it. It reads a window when that is
-- over. So a row that last changed before the end of its window is what it was; one that changed later is taken for settled
-- after a second, which is much longer than a worker takes from reading to committing.
CREATE OR REPLACE FUNCTION queen.is_unsettled(
    p_updated_at timestamptz, p_window_end float8, p_now timestamptz
) RETURNS bool
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_updated_at > p_now - interval '1 second'
    AND (p_window_end IS NULL OR extract(EPOCH FROM p_updated_at) * 1000 >= p_window_end);
COMMENT ON FUNCTION queen.is_unsettled IS 'Internal: whether a row may have changed since it was read for a flush.';
