-- Purpose:   the next partitions of a queue, by name, that are empty and have been so for long.
-- Arguments: p_after  name after which to look; p_limit  partitions to look at; p_idle  how long nothing was pushed;
--            p_not_after  see queen.older_than
-- Returns:   last_name, to go on from (null: that was all), and the partitions.
CREATE OR REPLACE FUNCTION queen.find_idle_partitions_v1(
    p_queue_id bigint, p_after text, p_limit int, p_idle interval, p_not_after timestamptz DEFAULT NULL,
    OUT last_name text, OUT part_ids bigint[]
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    SELECT CASE WHEN count(*) = p_limit THEN max(u.name) END,
        array_agg(u.id ORDER BY u.id) FILTER (WHERE queen.is_idle(u.id, e.older))
    INTO last_name, part_ids
    FROM (
        SELECT p.id, p.name FROM queen.partitions AS p
        WHERE p.queue_id = p_queue_id AND p.name > p_after ORDER BY p.name LIMIT p_limit
    ) AS u
    CROSS JOIN queen.older_than(p_idle, p_not_after) AS e (older);
END $$;
COMMENT ON FUNCTION queen.find_idle_partitions_v1 IS 'The next partitions of a queue that have been empty for long.';

-- Default stays, because configure names it. A partition with dead letters stays, because they belong to it, and so
-- does one with state of a stream, because the stream may be about to go on.
CREATE OR REPLACE FUNCTION queen.is_idle(p_part bigint, p_older timestamptz) RETURNS bool
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN EXISTS (
        SELECT 1 FROM queen.partitions AS p JOIN queen.log_ends AS h ON h.part_id = p.id
        WHERE p.id = p_part AND p.name <> 'Default' AND greatest(p.created_at, h.last_at) < p_older
    ) AND NOT EXISTS (SELECT 1 FROM queen.segments AS s WHERE s.part_id = p_part AND s.n > 0)
    AND NOT EXISTS (SELECT 1 FROM queen.dead_letter_queue AS d WHERE d.part_id = p_part)
    AND NOT EXISTS (SELECT 1 FROM queen.stream_state AS s WHERE s.part_id = p_part);
END $$;
COMMENT ON FUNCTION queen.is_idle IS 'Internal: whether a partition has been empty for long.';

-- Purpose:   removes partitions that are empty and have been so for long. A push that knows one by its number finds it
--            unknown, and creates it again under another number.
-- Returns:   one row per partition: state done or busy (another call has locked it), and whether it was removed.
-- Locks:     the queue row, as calls that create partitions; partitions with SKIP LOCKED; then cursors.
-- Writes:    as the deletion of a queue.
CREATE OR REPLACE FUNCTION queen.remove_idle_partitions_v1(
    p_queue_id bigint, p_part bigint[], p_idle interval, p_not_after timestamptz DEFAULT NULL
) RETURNS TABLE (part_id bigint, removed bool, state text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_older timestamptz := queen.older_than(p_idle, p_not_after);
    v_locked bigint[];
    v_idle bigint[];
BEGIN
    PERFORM queen.lock_queues(ARRAY[p_queue_id]);
    v_locked := ARRAY(
        SELECT l.part_id FROM queen.partition_locks AS l
        WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR UPDATE SKIP LOCKED);
    v_idle := ARRAY(SELECT u.part_id FROM unnest(v_locked) AS u (part_id) WHERE queen.is_idle(u.part_id, v_older));
    PERFORM queen.remove_partitions(v_idle);
    RETURN QUERY
    SELECT u.part_id, u.part_id = ANY(v_idle), CASE WHEN u.part_id = ANY(v_locked) THEN 'done' ELSE 'busy' END
    FROM unnest(p_part) AS u (part_id);
END $$;
COMMENT ON FUNCTION queen.remove_idle_partitions_v1 IS 'Removes partitions that have been empty for long.';
