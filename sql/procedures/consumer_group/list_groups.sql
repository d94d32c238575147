-- Purpose:   a page of the consumer groups of queues with their figures.
-- Arguments: p_queue (names): null matches any; p_search: what the name of group or queue holds (null: any)
--            p_order: name (of queue and group), lag (most undone messages first), or age (whose oldest undone message
--            waits longest first); p_reverse: the other way round;  p_behind: only those with undone messages
CREATE OR REPLACE FUNCTION queen.list_groups_v1(
    p_queue text[], p_search text, p_order text, p_reverse bool, p_behind bool, p_limit int, p_offset int
) RETURNS TABLE (
    grp_id bigint, name text, queue text, subscription_mode text, since timestamptz, created_at timestamptz,
    members bigint, partitions_with_lag bigint, total_lag bigint, leases bigint, leased_messages bigint,
    consumed bigint, untouched bool, oldest_at timestamptz, computed_at timestamptz, paused bool
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT g.id, g.name, q.name, g.subscription_mode, g.since, g.created_at, t.members, t.partitions_with_lag,
        t.total_lag, t.leases, t.leased_messages, t.consumed, t.untouched, t.oldest_at, t.computed_at, g.paused
    FROM queen.consumer_groups_metadata AS g
    JOIN queen.queues AS q ON q.id = g.queue_id
    LEFT JOIN queen.group_stats AS t ON t.grp_id = g.id
    WHERE (p_queue IS NULL OR q.name = any(p_queue))
        AND (p_search IS NULL OR strpos(lower(concat_ws(E'\n', g.name, q.name)), lower(p_search)) > 0)
        AND (NOT p_behind OR t.total_lag > 0)
    ORDER BY
        CASE WHEN p_reverse THEN 1 ELSE -1 END * CASE p_order
            WHEN 'lag' THEN coalesce(t.total_lag, 0)
            WHEN 'age' THEN coalesce(extract(epoch FROM queen.clock() - t.oldest_at), -1)
        END,
        CASE WHEN NOT p_reverse THEN q.name END, CASE WHEN NOT p_reverse THEN g.name END, q.name DESC, g.name DESC
    LIMIT p_limit OFFSET p_offset;
END $$;
COMMENT ON FUNCTION queen.list_groups_v1 IS 'A page of the consumer groups of queues with their statistics.';

-- Purpose:   a page of the queues of one group with its figures there.
-- Arguments: p_queue: null matches any;  p_search: what the name of the queue holds (null: any);  the others as above
-- Returns:   rows as above; total: how many match.
CREATE OR REPLACE FUNCTION queen.list_queues_of_group_v1(
    p_group text, p_queue text, p_search text, p_order text, p_reverse bool, p_behind bool, p_limit int, p_offset int
) RETURNS TABLE (
    grp_id bigint, name text, queue text, subscription_mode text, since timestamptz, created_at timestamptz,
    members bigint, partitions_with_lag bigint, total_lag bigint, leases bigint, leased_messages bigint,
    consumed bigint, untouched bool, oldest_at timestamptz, computed_at timestamptz, paused bool, total bigint
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT g.id, g.name, q.name, g.subscription_mode, g.since, g.created_at, t.members, t.partitions_with_lag,
        t.total_lag, t.leases, t.leased_messages, t.consumed, t.untouched, t.oldest_at, t.computed_at, g.paused,
        count(*) OVER ()
    FROM queen.consumer_groups_metadata AS g
    JOIN queen.queues AS q ON q.id = g.queue_id
    LEFT JOIN queen.group_stats AS t ON t.grp_id = g.id
    WHERE g.name = p_group AND (p_queue IS NULL OR q.name = p_queue)
        AND (p_search IS NULL OR strpos(lower(q.name), lower(p_search)) > 0)
        AND (NOT p_behind OR t.total_lag > 0)
    ORDER BY
        CASE WHEN p_reverse THEN 1 ELSE -1 END * CASE p_order
            WHEN 'lag' THEN coalesce(t.total_lag, 0)
            WHEN 'age' THEN coalesce(extract(epoch FROM queen.clock() - t.oldest_at), -1)
        END,
        CASE WHEN NOT p_reverse THEN q.name END, q.name DESC
    LIMIT p_limit OFFSET p_offset;
END $$;
COMMENT ON FUNCTION queen.list_queues_of_group_v1 IS 'A page of the queues of a consumer group with its statistics there.';

-- Purpose:   how many consumer groups a list has.
-- Arguments: as list_groups_v1
CREATE OR REPLACE FUNCTION queen.count_groups_v1(p_queue text[], p_search text, p_behind bool) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT count(*)
    FROM queen.consumer_groups_metadata AS g
    JOIN queen.queues AS q ON q.id = g.queue_id
    LEFT JOIN queen.group_stats AS t ON t.grp_id = g.id
    WHERE (p_queue IS NULL OR q.name = any(p_queue))
        AND (p_search IS NULL OR strpos(lower(concat_ws(E'\n', g.name, q.name)), lower(p_search)) > 0)
        AND (NOT p_behind OR t.total_lag > 0);
END;
COMMENT ON FUNCTION queen.count_groups_v1 IS 'How many consumer groups a list has.';

-- Purpose:   the figures of the groups of queues together.
-- Arguments: as queen.chosen_queues
CREATE OR REPLACE FUNCTION queen.summarize_groups_v1(
    p_namespace text, p_task text, p_queue text[],
    OUT groups bigint, OUT leases bigint, OUT leased_messages bigint, OUT consumed bigint
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT count(*), coalesce(sum(t.leases), 0)::bigint, coalesce(sum(t.leased_messages), 0)::bigint,
        coalesce(sum(t.consumed), 0)::bigint
    FROM queen.consumer_groups_metadata AS g
    JOIN queen.chosen_queues(p_namespace, p_task, p_queue, NULL) AS q ON q.queue_id = g.queue_id
    LEFT JOIN queen.group_stats AS t ON t.grp_id = g.id;
END;
COMMENT ON FUNCTION queen.summarize_groups_v1 IS 'The statistics of the groups of queues, added up.';

-- Purpose:   says how some queues are consumed: whether in queue mode, and by how many named groups.
CREATE OR REPLACE FUNCTION queen.describe_consumers_v1(p_queue text[], OUT queue_mode bool, OUT groups bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        coalesce(bool_or(g.name = '__QUEUE_MODE__'), false),
        count(DISTINCT g.name) FILTER (WHERE g.name <> '__QUEUE_MODE__')
    FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id WHERE q.name = any(p_queue);
END;
COMMENT ON FUNCTION queen.describe_consumers_v1 IS 'Whether queues are consumed in queue mode, and by how many groups.';

-- Purpose:   the queues on which a group is paused.
CREATE OR REPLACE FUNCTION queen.find_paused_v1(p_group text) RETURNS TABLE (queue text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.name FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id
    WHERE g.name = p_group AND g.paused;
END;
COMMENT ON FUNCTION queen.find_paused_v1 IS 'The queues on which the group of the given name is paused.';

-- Purpose:   a page of the cursors of a group, on one queue or all; figures of this moment.
-- Arguments: p_queue: null matches any; p_search: what the name of the partition holds (null: any)
--            p_order: name (of the partition, queue by queue), lag (most undone messages first), age (longest wait first) or
--            acknowledged (most first); p_reverse: the other way round;  p_behind: only those with undone messages
-- Returns:   one row per cursor. total: the cursors of its queue that match; by name without a search as the statistics
--            know it, or null.
-- Reads:     by name: the page only, and with a search all names; else every cursor that matches.
CREATE OR REPLACE FUNCTION queen.list_cursors_v1(
    p_group text, p_queue text, p_search text, p_order text, p_reverse bool, p_behind bool, p_limit int, p_offset int
) RETURNS TABLE (
    queue text, partition text, undone bigint, consumed bigint, lease uuid, oldest_at timestamptz,
    consumed_at timestamptz, total bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_paged CONSTANT bool := p_order = 'name' AND NOT p_behind;
BEGIN
    RETURN QUERY
    SELECT v.queue, v.partition, v.undone, v.consumed, v.lease, v.oldest_at, v.consumed_at, v.total
    FROM (
        SELECT o.queue, p.name AS partition, c.undone, c.consumed, c.lease, c.oldest_at, c.consumed_at, o.queue_id,
            CASE WHEN v_paged THEN o.total ELSE count(*) OVER (PARTITION BY o.queue_id) END AS total
        FROM (
            SELECT u.queue, u.queue_id, u.grp_id, array_agg(u.id) AS parts, max(u.total) AS total
            FROM (
                SELECT q.name AS queue, q.id AS queue_id, p.id, g.id AS grp_id,
                    CASE WHEN v_paged AND p_search IS NULL THEN t.members
                        WHEN v_paged THEN count(*) OVER (PARTITION BY q.id) END AS total
                FROM queen.consumer_groups_metadata AS g
                JOIN queen.queues AS q ON q.id = g.queue_id
                JOIN queen.partitions AS p ON p.queue_id = q.id
                LEFT JOIN queen.group_stats AS t ON t.grp_id = g.id
                WHERE g.name = p_group AND (p_queue IS NULL OR q.name = p_queue)
                    AND (p_search IS NULL OR strpos(lower(p.name), lower(p_search)) > 0)
                ORDER BY q.id, CASE WHEN NOT p_reverse THEN p.name END, CASE WHEN p_reverse THEN p.name END DESC
                LIMIT CASE WHEN v_paged THEN p_limit END OFFSET CASE WHEN v_paged THEN p_offset ELSE 0 END
            ) AS u
            GROUP BY u.queue, u.queue_id, u.grp_id
        ) AS o
        CROSS JOIN LATERAL queen.cursors_of(o.parts, o.grp_id) AS c
        JOIN queen.partitions AS p ON p.id = c.part_id
        WHERE NOT p_behind OR c.undone > 0
    ) AS v
    ORDER BY
        CASE WHEN p_reverse THEN 1 ELSE -1 END * CASE p_order
            WHEN 'lag' THEN v.undone WHEN 'acknowledged' THEN v.consumed
            WHEN 'age' THEN coalesce(extract(epoch FROM queen.clock() - v.oldest_at), -1)
        END,
        v.queue_id, CASE WHEN NOT p_reverse THEN v.partition END, CASE WHEN p_reverse THEN v.partition END DESC
    LIMIT p_limit OFFSET CASE WHEN v_paged THEN 0 ELSE p_offset END;
END $$;
COMMENT ON FUNCTION queen.list_cursors_v1 IS 'A page of the cursors of a group.';

-- Purpose:   partitions whose oldest undone message waits longer than a time, longest first: of each group the slowest
--            as the statistics found them, judged again.
-- Reads:     of the p_limit groups that are furthest behind about ten times p_limit cursors in all, the slowest of
--            each.
CREATE OR REPLACE FUNCTION queen.list_lagging_v1(p_seconds int, p_limit int)
RETURNS TABLE (
    consumer_group text, queue text, partition text, part_id bigint, undone bigint, lease uuid, oldest_at timestamptz,
    consumed_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_before timestamptz := queen.clock() - make_interval(secs => p_seconds);
    v_groups bigint[];
    v_each int;
BEGIN
    v_groups := ARRAY(
        SELECT t.grp_id FROM queen.group_stats AS t
        WHERE t.oldest_at < v_before AND t.slowest <> '{}' ORDER BY t.oldest_at LIMIT p_limit);
    v_each := 10 * p_limit / greatest(cardinality(v_groups), 1);
    RETURN QUERY
    SELECT l.consumer_group, l.queue, p.name, l.part_id, l.undone, l.lease, l.oldest_at, l.consumed_at
    FROM (
        SELECT g.name AS consumer_group, q.name AS queue, c.*
        FROM queen.group_stats AS t
        JOIN queen.consumer_groups_metadata AS g ON g.id = t.grp_id
        JOIN queen.queues AS q ON q.id = g.queue_id
        CROSS JOIN LATERAL queen.cursors_of(t.slowest[:v_each], t.grp_id) AS c
        WHERE t.grp_id = ANY(v_groups) AND c.oldest_at < v_before
        ORDER BY c.oldest_at, g.name, c.part_id LIMIT p_limit
    ) AS l
    JOIN queen.partitions AS p ON p.id = l.part_id
    ORDER BY l.oldest_at, l.consumer_group, l.part_id;
END $$;
COMMENT ON FUNCTION queen.list_lagging_v1 IS 'Partitions whose oldest unacknowledged message is older than an age.';

-- Purpose:   the queues that have a group of that name.
CREATE OR REPLACE FUNCTION queen.find_group_queues_v1(p_group text) RETURNS TABLE (queue text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.name FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id
    WHERE g.name = p_group ORDER BY q.id;
END;
COMMENT ON FUNCTION queen.find_group_queues_v1 IS 'The queues that have a group of the given name.';

-- Not inlined, so that the partitions are looked up and not searched for.
CREATE OR REPLACE FUNCTION queen.cursors_of(p_part bigint[], p_grp bigint)
RETURNS TABLE (
    part_id bigint, undone bigint, consumed bigint, lease uuid, oldest_at timestamptz, consumed_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.part_id, c.undone, c.consumed, c.lease, c.oldest_at, c.consumed_at
    FROM queen.cursor_figures(p_part, p_grp, queen.clock()) AS c;
END $$;
COMMENT ON FUNCTION queen.cursors_of IS 'Internal: the given cursors of a group, with their figures.';

-- Purpose:   groups that have begun and have no cursor in a partition yet; queue mode, if its queue has no group.
CREATE OR REPLACE FUNCTION queen.find_groups_without_cursor_v1(p_part bigint) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue CONSTANT bigint := (SELECT p.queue_id FROM queen.partitions AS p WHERE p.id = p_part);
BEGIN
    IF v_queue IS NOT NULL AND NOT EXISTS (SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = v_queue) THEN
        RETURN NEXT '__QUEUE_MODE__';
    END IF;
    RETURN QUERY
    SELECT g.name::text FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.subscribed_upto >= 0 AND g.subscribed_upto < p_part AND (
        SELECT c.ver FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.grp_id = g.id ORDER BY c.ver DESC LIMIT 1
    ) IS NULL
    ORDER BY g.id;
END $$;
COMMENT ON FUNCTION queen.find_groups_without_cursor_v1 IS
    'Groups that lack a cursor in a partition and should have one.';
