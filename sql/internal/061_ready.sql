-- What pops would deliver now, without a lease and without a change.

-- How many messages above p_acked and not in p_ahead a pop sees: all of the kept ones, unless they are delayed, or the youngest
-- holds back the partition. What was pushed before the group's start is not for it. Without a cursor (p_acked is null), a first
-- pop would find all that was not deleted.
CREATE OR REPLACE FUNCTION queen.visible_messages(
    p_part bigint, p_acked bigint, p_ahead int8multirange, p_starts_at timestamptz, p_delay int, p_window int,
    p_now timestamptz
) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_end record;
    v_acked bigint := coalesce(p_acked, -1);
    v_done int8multirange := p_ahead;
    v_first bigint;
    v_last bigint;
BEGIN
    SELECT e.next_off - 1 AS last, e.last_at INTO v_end FROM queen.log_ends AS e WHERE e.part_id = p_part;
    IF v_end.last <= v_acked OR v_end.last_at + make_interval(secs => p_window) > p_now THEN
        RETURN 0;
    END IF;
    IF p_starts_at IS NOT NULL THEN
        v_acked := greatest(v_acked, queen.last_before(p_part, p_starts_at));
    END IF;
    v_last := CASE WHEN p_delay > 0 THEN queen.last_before(p_part, p_now - make_interval(secs => p_delay)) ELSE v_end.last END;
    SELECT greatest(s.last_off - s.n, v_acked) + 1 INTO v_first
    FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off > v_acked AND s.n > 0 ORDER BY s.last_off LIMIT 1;
    IF v_first IS NULL OR v_first > v_last THEN
        RETURN 0;
    END IF;
    IF p_acked IS NULL THEN
        SELECT d.offsets INTO v_done FROM queen.deleted_messages AS d WHERE d.part_id = p_part;
    END IF;
    RETURN v_last - v_first + 1
        - CASE WHEN v_done IS NULL THEN 0
            ELSE queen.range_size(v_done * int8multirange(int8range(v_first, v_last, '[]'))) END;
END $$;
COMMENT ON FUNCTION queen.visible_messages IS 'Internal: how many messages of a partition a pop sees.';

-- The partitions of which a pop would deliver something now, and how many messages; of these only, or of all (null); p_limit of
-- them, or all (null). Nothing under a live lease, nothing while a retry or a delay lasts, and nothing of what is paused. A group that is not there (null)
-- would begin at the oldest message that has not waited too long.
CREATE OR REPLACE FUNCTION queen.ready_partitions(p_queue bigint, p_parts bigint[], p_grp bigint, p_limit bigint)
RETURNS TABLE (part_id bigint, ready bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_queue record;
BEGIN
    SELECT
        q.delayed_processing AS delay, q.window_buffer AS patience, g.starts_at,
        q.paused OR coalesce(g.paused, false) AS paused,
        CASE WHEN q.max_wait_time_seconds > 0 THEN v_now - make_interval(secs => q.max_wait_time_seconds) END AS in_time
    INTO v_queue
    FROM queen.queues AS q LEFT JOIN queen.consumer_groups_metadata AS g ON g.id = p_grp WHERE q.id = p_queue;
    IF v_queue.paused THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT r.part_id, r.ready
    FROM (
        SELECT c.part_id, queen.visible_messages(
            c.part_id, c.acked, c.ahead, v_queue.starts_at, v_queue.delay, v_queue.patience, v_now) AS ready
        FROM queen.partition_consumers AS c
        WHERE p_parts IS NULL AND c.grp_id = p_grp AND c.ready_at <= v_now AND c.ready_at < 'infinity'
        UNION ALL
        SELECT c.part_id, queen.visible_messages(
            c.part_id, c.acked, c.ahead, v_queue.starts_at, v_queue.delay, v_queue.patience, v_now)
        FROM unnest(p_parts) AS u (id)
        JOIN queen.partition_consumers AS c ON c.part_id = u.id AND c.grp_id = p_grp
        WHERE c.ready_at <= v_now
        UNION ALL
        SELECT p.id, queen.visible_messages(p.id, NULL, NULL, v_queue.in_time, v_queue.delay, v_queue.patience, v_now)
        FROM queen.partitions AS p
        WHERE p_grp IS NULL AND p.queue_id = p_queue AND (p_parts IS NULL OR p.id = ANY(p_parts))
    ) AS r
    WHERE r.ready > 0 LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.ready_partitions IS 'Internal: what pops of a group would deliver now, by partition.';

-- The group of that name on a queue, or the one that is farthest behind, by the statistics.
CREATE OR REPLACE FUNCTION queen.group_or_slowest(p_queue bigint, p_group text) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT g.id FROM queen.consumer_groups_metadata AS g
    LEFT JOIN queen.group_stats AS s ON s.grp_id = g.id
    WHERE g.queue_id = p_queue AND (p_group IS NULL OR g.name = p_group)
    ORDER BY s.total_lag DESC NULLS LAST, g.id LIMIT 1;
END;
COMMENT ON FUNCTION queen.group_or_slowest IS 'Internal: a group of a queue by its name, or the one that is farthest behind.';
