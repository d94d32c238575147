-- Plans: ADR 38 says why = ANY(ARRAY[x]), queue_id + 0.

-- The maximum size of queues: how much is in one, and who may still push.

-- Serialises the pushes to queues that have a maximum size: what one counts, no other changes before it commits.
CREATE OR REPLACE FUNCTION queen.lock_queues(p_queue_id bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM 1 FROM queen.queues AS q WHERE q.id = ANY(p_queue_id) ORDER BY q.id FOR NO KEY UPDATE;
END $$;
COMMENT ON FUNCTION queen.lock_queues IS 'Internal: locks the rows of queues that have a maximum size.';

-- The offset up to which every group is done with a partition; null: there is no group. The cursors of a group whose
-- start is to come move when it has come (queen.begin_page): until then they are as good as there.
CREATE OR REPLACE FUNCTION queen.lowest_cursor(p_part bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (
        SELECT min(greatest(c.acked, CASE WHEN g.starts_at IS NOT NULL THEN queen.last_before(p_part, g.starts_at) END))
        FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
        WHERE c.part_id = p_part
    );
END $$;
COMMENT ON FUNCTION queen.lowest_cursor IS 'Internal: the offset up to which every group has finished a partition.';

-- The same for groups of the queue that have begun and have no cursor in the partition yet (queen.begin_page).
CREATE OR REPLACE FUNCTION queen.lowest_start(p_queue_id bigint, p_part bigint) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
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
COMMENT ON FUNCTION queen.lowest_start IS
    'Internal: the lowest position of the cursors that a partition is still to get.';

-- Messages that some group has still to complete, counted from the lowest cursor of each partition; where there is no
-- group, all that are kept. Null: there are more than p_places places to look at, which are cursors that are not
-- parked, and partitions in which some group has no cursor yet, or that have no group. A parked cursor stands at the
-- end of the log.
CREATE OR REPLACE FUNCTION queen.backlog(p_queue_id bigint, p_places bigint) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_upto CONSTANT bigint := coalesce((
        SELECT min(g.subscribed_upto) FROM queen.consumer_groups_metadata AS g
        WHERE g.queue_id = p_queue_id AND g.subscribed_upto >= 0), 0);
BEGIN
    RETURN (
        WITH place AS MATERIALIZED (
            SELECT c.part_id, c.acked, g.starts_at
            FROM queen.consumer_groups_metadata AS g
            CROSS JOIN LATERAL (
                SELECT r.part_id, r.acked FROM queen.partition_consumers AS r
                WHERE r.grp_id = g.id AND r.ready_at < 'infinity' OFFSET 0
            ) AS c
            WHERE g.queue_id = p_queue_id
            UNION ALL
            SELECT p.id, NULL, NULL FROM queen.partitions AS p WHERE p.queue_id + 0 = p_queue_id AND p.id + 0 > v_upto
            LIMIT p_places + 1
        )
        SELECT coalesce(sum(e.next_off - 1 - coalesce(
            least(u.low, CASE WHEN u.part_id > v_upto THEN queen.lowest_start(p_queue_id, u.part_id) END),
            CASE
                WHEN EXISTS (SELECT 1 FROM queen.partition_consumers AS c WHERE c.part_id = u.part_id) THEN e.next_off - 1
                ELSE queen.last_before(u.part_id, '-infinity')
            END)), 0)
        FROM (
            SELECT p.part_id, min(greatest(
                p.acked, CASE WHEN p.starts_at IS NOT NULL THEN queen.last_before(p.part_id, p.starts_at) END)) AS low
            FROM place AS p GROUP BY p.part_id
        ) AS u
        CROSS JOIN LATERAL (SELECT l.next_off FROM queen.log_ends AS l WHERE l.part_id = u.part_id OFFSET 0) AS e
        HAVING p_places IS NULL OR (SELECT count(*) FROM place) <= p_places
    );
END $$;
COMMENT ON FUNCTION queen.backlog IS 'Internal: messages of a queue that some group has still to acknowledge.';

-- Locks what is known of the size of a queue, and returns it (null: nothing is). In the order of all locks this comes after
-- partitions and before cursors. Pushes hold it to their commit, so what they have counted stays true.
CREATE OR REPLACE FUNCTION queen.lock_size(p_queue_id bigint) RETURNS queen.queue_sizes
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_size queen.queue_sizes;
BEGIN
    SELECT * INTO v_size FROM queen.queue_sizes AS s
    WHERE s.queue_id = p_queue_id ORDER BY s.ver DESC LIMIT 1 FOR UPDATE;
    RETURN v_size;
END $$;
COMMENT ON FUNCTION queen.lock_size IS 'Internal: locks the stored size of a queue.';

CREATE OR REPLACE FUNCTION queen.lock_sizes(p_queue_id bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM queen.lock_size(o.id) FROM (SELECT u.id FROM unnest(p_queue_id) AS u (id) ORDER BY u.id) AS o;
END $$;
COMMENT ON FUNCTION queen.lock_sizes IS 'Internal: locks the stored sizes of queues.';

-- Something other than a push may have made the backlog larger: a cursor moved back, or a group was made or deleted.
CREATE OR REPLACE FUNCTION queen.forget_size(p_queue_id bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_size queen.queue_sizes := queen.lock_size(p_queue_id);
BEGIN
    UPDATE queen.queue_sizes AS s SET most = NULL, resets = s.resets + 1, ver = s.ver + 1
    WHERE s.queue_id = p_queue_id AND s.ver = v_size.ver;
END $$;
COMMENT ON FUNCTION queen.forget_size IS 'Internal: marks the size of a queue as unknown.';

-- Messages that are pushed. The caller has lock_size of these queues.
CREATE OR REPLACE FUNCTION queen.add_to_sizes(p_queue_id bigint[], p_n bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE queen.queue_sizes AS s SET most = s.most + u.n, pushed = s.pushed + u.n, ver = s.ver + 1
    FROM (
        SELECT o.queue_id, o.n, l.ver
        FROM unnest(p_queue_id, p_n) AS o (queue_id, n)
        CROSS JOIN LATERAL (
            SELECT z.ver FROM queen.queue_sizes AS z WHERE z.queue_id = o.queue_id ORDER BY z.ver DESC LIMIT 1
        ) AS l
    ) AS u
    WHERE s.queue_id = ANY(ARRAY[u.queue_id]) AND s.ver = u.ver;
END $$;
COMMENT ON FUNCTION queen.add_to_sizes IS 'Internal: adds pushed messages to the sizes of queues.';

-- Recounts the messages of a queue whose size the caller has locked. It looks at up to 1,000 places, because others
-- wait meanwhile, and leaves more to queen.count_backlog_v1, unless that has not run for 30 s. It also leaves the next
-- count to that, if this one read very much: dead index entries of cursors, while some transaction holds a snapshot.
CREATE OR REPLACE FUNCTION queen.count_again(p_queue_id bigint, p_size queen.queue_sizes) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_much CONSTANT bigint := pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass) + 20000;
    v_counted bigint;
    v_asks bool;
BEGIN
    IF p_size.asked_at > queen.clock() - interval '30 s' THEN
        RETURN p_size.most;
    END IF;
    v_counted := queen.backlog(p_queue_id, CASE WHEN p_size.queue_id IS NOT NULL AND p_size.asked_at IS NULL THEN 1000 END);
    v_asks := v_counted IS NULL OR pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass) > v_much;
    UPDATE queen.queue_sizes AS s
    SET most = coalesce(v_counted, s.most), asked_at = CASE WHEN v_asks THEN queen.clock() END, ver = s.ver + 1
    WHERE s.queue_id = p_queue_id AND s.ver = p_size.ver
        AND (v_counted IS DISTINCT FROM s.most OR v_asks OR s.asked_at IS NOT NULL);
    RETURN coalesce(v_counted, p_size.most);
END $$;
COMMENT ON FUNCTION queen.count_again IS 'Internal: recounts the messages of a queue, if there are not too many.';

-- The same for a push that was undone because its queues have no room: its own count was undone with it.
CREATE OR REPLACE FUNCTION queen.count_each_again(p_queue_id bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM queen.count_again(o.id, queen.lock_size(o.id)) FROM (SELECT u.id FROM unnest(p_queue_id) AS u (id) ORDER BY u.id) AS o;
END $$;
COMMENT ON FUNCTION queen.count_each_again IS 'Internal: recounts the messages of queues.';

-- Reserves room for a push, and returns nothing. If some of its queues have not enough room, it returns their segments
-- and how many messages each has room for. The caller has locked the rows of the queues and the partitions. No maximum
-- applies while other pushes may not count yet (queen.pending_configurations).
CREATE OR REPLACE FUNCTION queen.take_room(p_limited bigint[], p_part bigint[], p_n int[])
RETURNS TABLE (part_id bigint, room bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_queue record;
    v_size queen.queue_sizes;
    v_most bigint;
    v_ids bigint[] := '{}';
    v_n bigint[] := '{}';
    v_full bool := false;
BEGIN
    FOR v_queue IN
        SELECT q.id, q.max_size, w.n, w.parts
        FROM (
            SELECT p.queue_id, sum(u.n)::bigint AS n, array_agg(p.id) AS parts
            FROM unnest(p_part, p_n) AS u (part_id, n)
            JOIN queen.partitions AS p ON p.id = ANY(ARRAY[u.part_id]) AND p.queue_id = ANY(p_limited)
            GROUP BY p.queue_id
        ) AS w
        JOIN queen.queues AS q ON q.id = ANY(ARRAY[w.queue_id]) AND q.max_size > 0
            AND NOT EXISTS (SELECT 1 FROM queen.pending_configurations AS c WHERE c.queue_id = q.id AND c.limits)
        ORDER BY q.id
    LOOP
        v_size := queen.lock_size(v_queue.id);
        v_most := v_size.most;
        IF coalesce(v_most + v_queue.n > v_queue.max_size, true) THEN
            v_most := queen.count_again(v_queue.id, v_size);
        END IF;
        IF coalesce(v_most + v_queue.n > v_queue.max_size, true) THEN
            v_full := true;
            RETURN QUERY
            SELECT u.id, greatest(v_queue.max_size - coalesce(v_most, v_queue.max_size), 0)
            FROM unnest(v_queue.parts) AS u (id);
        END IF;
        v_ids := v_ids || v_queue.id;
        v_n := v_n || v_queue.n;
    END LOOP;
    IF NOT v_full THEN
        PERFORM queen.add_to_sizes(v_ids, v_n);
    END IF;
END $$;
COMMENT ON FUNCTION queen.take_room IS 'Internal: reserves room for a push, or returns how much there is.';
