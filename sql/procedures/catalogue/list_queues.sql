-- The queues that are meant; each argument may be null and matches any then. p_search: what name, namespace or task
-- holds.
CREATE OR REPLACE FUNCTION queen.chosen_queues(p_namespace text, p_task text, p_queue text[], p_search text)
RETURNS TABLE (
    queue_id bigint, name text, namespace text, task text, created_at timestamptz, partitions bigint, total bigint,
    pending bigint, processing bigint, completed bigint, failed bigint, dead_letter bigint, offset_lag bigint,
    oldest_at timestamptz, computed_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.id, q.name, q.namespace, q.task, q.created_at, t.partitions, t.total, t.pending, t.processing, t.completed,
        t.failed, t.dead_letter, t.offset_lag, t.oldest_at, t.computed_at
    FROM queen.queues AS q LEFT JOIN queen.queue_stats AS t ON t.queue_id = q.id
    WHERE (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
        AND (p_queue IS NULL OR q.name = any(p_queue))
        AND (p_search IS NULL OR strpos(lower(concat_ws(E'\n', q.name, q.namespace, q.task)), lower(p_search)) > 0);
END;
COMMENT ON FUNCTION queen.chosen_queues IS 'Internal: the queues that match a filter, with their statistics.';

-- Purpose:   a page of queues with their figures.
-- Arguments: p_namespace, p_task, p_queue (names), p_search: as queen.chosen_queues
--            p_order: newest (first), name, partitions, total, pending or processing (most first); p_reverse: the other
--            way round
-- Returns:   one row per queue; figures and computed_at are null until the statistics know it.
CREATE OR REPLACE FUNCTION queen.list_queues_v1(
    p_namespace text, p_task text, p_queue text[], p_search text, p_order text, p_reverse bool, p_limit int,
    p_offset int
) RETURNS TABLE (
    queue_id bigint, name text, namespace text, task text, created_at timestamptz, partitions bigint, total bigint,
    pending bigint, processing bigint, completed bigint, failed bigint, dead_letter bigint, offset_lag bigint,
    oldest_at timestamptz, computed_at timestamptz, paused bool
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.queue_id, q.name, q.namespace, q.task, q.created_at, q.partitions, q.total, q.pending, q.processing,
        q.completed, q.failed, q.dead_letter, q.offset_lag, q.oldest_at, q.computed_at, o.paused
    FROM queen.chosen_queues(p_namespace, p_task, p_queue, p_search) AS q
    JOIN queen.queues AS o ON o.id = q.queue_id
    ORDER BY
        CASE WHEN p_order = 'name' AND NOT p_reverse THEN q.name END, CASE WHEN p_order = 'name' THEN q.name END DESC,
        CASE WHEN p_reverse THEN 1 ELSE -1 END * CASE p_order
            WHEN 'partitions' THEN coalesce(q.partitions, 0) WHEN 'total' THEN coalesce(q.total, 0)
            WHEN 'pending' THEN coalesce(q.pending, 0) WHEN 'processing' THEN coalesce(q.processing, 0)
        END,
        CASE WHEN p_reverse THEN q.queue_id END, q.queue_id DESC
    LIMIT p_limit OFFSET p_offset;
END $$;
COMMENT ON FUNCTION queen.list_queues_v1 IS 'A page of queues with their statistics.';

-- Purpose:   the figures of queues together.
-- Arguments: as queen.chosen_queues
-- Returns:   one row. computed_at: of the oldest figures (null: those of some queue were never computed, or there is
--            none); age_*: seconds that the oldest undone message of a queue waits, 0 if there is none; lag_*: its
--            offset_lag.
CREATE OR REPLACE FUNCTION queen.summarize_queues_v1(
    p_namespace text, p_task text, p_queue text[], p_search text,
    OUT queues bigint, OUT partitions bigint, OUT namespaces bigint, OUT tasks bigint, OUT total bigint,
    OUT pending bigint, OUT processing bigint, OUT completed bigint, OUT failed bigint, OUT dead_letter bigint,
    OUT computed_at timestamptz, OUT age_mean float8, OUT age_median float8, OUT age_min float8, OUT age_max float8,
    OUT lag_mean float8, OUT lag_median float8, OUT lag_min float8, OUT lag_max float8
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        count(*), coalesce(sum(q.partitions), 0)::bigint, count(DISTINCT nullif(q.namespace, '')),
        count(DISTINCT nullif(q.task, '')), coalesce(sum(q.total), 0)::bigint, coalesce(sum(q.pending), 0)::bigint,
        coalesce(sum(q.processing), 0)::bigint, coalesce(sum(q.completed), 0)::bigint,
        coalesce(sum(q.failed), 0)::bigint, coalesce(sum(q.dead_letter), 0)::bigint,
        CASE WHEN count(q.computed_at) = count(*) THEN min(q.computed_at) END,
        coalesce(avg(a.age), 0), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY a.age), 0),
        coalesce(min(a.age), 0), coalesce(max(a.age), 0),
        coalesce(avg(a.lag), 0), coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY a.lag), 0),
        coalesce(min(a.lag), 0), coalesce(max(a.lag), 0)
    FROM queen.chosen_queues(p_namespace, p_task, p_queue, p_search) AS q
    CROSS JOIN LATERAL (
        SELECT
            coalesce(greatest(floor(date_part('epoch', queen.clock() - q.oldest_at)), 0), 0) AS age,
            coalesce(q.offset_lag, 0)::float8 AS lag
    ) AS a;
END;
COMMENT ON FUNCTION queen.summarize_queues_v1 IS 'The statistics of queues, added up.';

-- Purpose:   a page of the queues that hold or held messages, newest first, with what their furthest group has done.
CREATE OR REPLACE FUNCTION queen.list_used_queues_v1(
    p_namespace text, p_task text, p_queue text[], p_limit int, p_offset int
) RETURNS TABLE (queue_id bigint, name text, namespace text, task text, partitions bigint, consumed bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.queue_id, q.name, q.namespace, q.task, coalesce(q.partitions, 0), c.consumed
    FROM queen.chosen_queues(p_namespace, p_task, p_queue, NULL) AS q
    CROSS JOIN LATERAL (
        SELECT coalesce(max(t.consumed), 0) AS consumed FROM queen.group_stats AS t WHERE t.queue_id = q.queue_id
    ) AS c
    WHERE q.total > 0 OR c.consumed > 0
    ORDER BY q.queue_id DESC LIMIT p_limit OFFSET p_offset;
END $$;
COMMENT ON FUNCTION queen.list_used_queues_v1 IS 'A page of the queues that hold messages or have held some.';
