-- The maximum size of queues: how much is in one, and who may still push.

-- Serialises the pushes to queues that have a maximum size: what one counts, no other changes before it commits.
CREATE OR REPLACE FUNCTION queen.lock_queues(p_queue_id bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM 1 FROM queen.queues AS q WHERE q.id = ANY(p_queue_id) ORDER BY q.id FOR NO KEY UPDATE;
END $$;
COMMENT ON FUNCTION queen.lock_queues IS 'Internal: locks the rows of queues that have a maximum size.';

-- The offset up to which every group is done with a partition; null: there is no group. The cursors of a group whose start
-- is to come move when it has come (queen.begin_page): until then they are as good as there.
CREATE OR REPLACE FUNCTION queen.lowest_cursor(p_part bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT min(greatest(c.acked, CASE WHEN g.starts_at IS NOT NULL THEN queen.last_before(p_part, g.starts_at) END))
        FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
        WHERE c.part_id = p_part
    );
END $$;
COMMENT ON FUNCTION queen.lowest_cursor IS 'Internal: the offset up to which every group is done with a partition.';

-- The same for groups of the queue that have begun and have no cursor in the partition yet (queen.begin_page).
CREATE OR REPLACE FUNCTION queen.lowest_start(p_queue_id bigint, p_part bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT min(queen.last_before(p_part, queen.start_of(g, queen.clock())))
        FROM queen.consumer_groups_metadata AS g
        WHERE g.queue_id = p_queue_id AND g.subscribed_upto >= 0 AND g.subscribed_upto < p_part
            AND (
                SELECT c.ver FROM queen.partition_consumers AS c
                WHERE c.part_id = p_part AND c.grp_id = g.id ORDER BY c.ver DESC LIMIT 1
            ) IS NULL
    );
END $$;
COMMENT ON FUNCTION queen.lowest_start IS 'Internal: where the lowest cursor will stand that a partition has not yet.';

-- Messages that some group has still to complete, counted from the lowest cursor of each partition; where there is no
-- group, all that are kept.
CREATE OR REPLACE FUNCTION queen.backlog(p_queue_id bigint) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_upto CONSTANT bigint := (
        SELECT min(g.subscribed_upto) FROM queen.consumer_groups_metadata AS g
        WHERE g.queue_id = p_queue_id AND g.subscribed_upto >= 0);
BEGIN
    RETURN (
        SELECT coalesce(sum(
            h.next_off - 1 - coalesce(
                least(queen.lowest_cursor(p.id), CASE WHEN p.id > v_upto THEN queen.lowest_start(p_queue_id, p.id) END),
                queen.last_before(p.id, '-infinity'))), 0)
        FROM queen.partitions AS p JOIN queen.log_ends AS h ON h.part_id = p.id
        WHERE p.queue_id = p_queue_id AND h.next_off > 0
    );
END $$;
COMMENT ON FUNCTION queen.backlog IS 'Messages of a queue that some group has still to complete.';

-- Those segments of a push whose queue would become too large, and how many messages it has room for. The caller holds
-- the rows of the queues. No maximum holds as long as others may push who do not count (queen.pending_configurations).
CREATE OR REPLACE FUNCTION queen.find_full(p_limited bigint[], p_part bigint[], p_n int[])
RETURNS TABLE (part_id bigint, room bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH pushed AS (
        SELECT p.id, p.queue_id, sum(u.n) OVER (PARTITION BY p.queue_id) AS n
        FROM unnest(p_part, p_n) AS u (part_id, n)
        JOIN queen.partitions AS p ON p.id = ANY(ARRAY[u.part_id]) AND p.queue_id = ANY(p_limited)
    ), limited AS (
        SELECT q.id, greatest(q.max_size - queen.backlog(q.id), 0) AS room
        FROM queen.queues AS q WHERE q.id = ANY(p_limited) AND q.max_size > 0
            AND NOT EXISTS (SELECT 1 FROM queen.pending_configurations AS c WHERE c.queue_id = q.id AND c.limits)
    )
    SELECT pushed.id, limited.room FROM pushed JOIN limited ON limited.id = pushed.queue_id
    WHERE pushed.n > limited.room;
END $$;
COMMENT ON FUNCTION queen.find_full IS 'Internal: segments of a push whose queue would become too large.';
