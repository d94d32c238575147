-- Purpose:   the next partitions of a queue, by name, in which a message has waited longer than max_wait_time_seconds.
-- Arguments: p_after  name after which to look; p_limit  partitions to look at; p_not_after  see queen.older_than
-- Returns:   last_name, to go on from (null: that was all), and the partitions.
CREATE OR REPLACE FUNCTION queen.find_overdue_v1(
    p_queue_id bigint, p_after text, p_limit int, p_not_after timestamptz DEFAULT NULL,
    OUT last_name text, OUT part_ids bigint[]
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
BEGIN
    SELECT CASE WHEN count(*) = p_limit THEN max(u.name) END, array_agg(u.id ORDER BY u.id) FILTER (WHERE o.overdue)
    INTO last_name, part_ids
    FROM (
        SELECT p.id, p.name FROM queen.partitions AS p
        WHERE p.queue_id = p_queue_id AND p.name > p_after ORDER BY p.name LIMIT p_limit
    ) AS u
    JOIN queen.queues AS q ON q.id = p_queue_id AND q.max_wait_time_seconds > 0
    CROSS JOIN LATERAL queen.older_than(make_interval(secs => q.max_wait_time_seconds), p_not_after) AS e (older)
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT s.created_at FROM queen.segments AS s
            WHERE s.part_id = u.id
                AND s.last_off > coalesce(queen.lowest_cursor(u.id), -1)
            ORDER BY s.last_off LIMIT 1
        ) < e.older, false) AS overdue
    ) AS o;
END $$;
COMMENT ON FUNCTION queen.find_overdue_v1 IS 'The next partitions of a queue in which messages have waited too long.';

-- Purpose:   gives up, for each group that has not done them, messages that have waited longer than max_wait_time_seconds,
--            unless they are under a live lease. They leave a dead letter, unless the queue keeps none. A queue that nobody
--            has ever read from gets the group of consumers that name none, which would be their reader.
-- Arguments: p_part  partitions of one queue, ascending; p_messages at most, and fewer if they
--            take longer than 6 ms (queen.portion); p_wait whether to wait for
--            cursors that consumers hold, or to pass them over; p_not_after see queen.older_than
-- Returns:   one row a partition: the messages given up, and state: done, more, or busy.
-- Locks:     as subscribe_v1, if the queue has no group, and then nothing else; or the queue row FOR SHARE; then a page of a group
--            that should have begun by now (queen.begin_page), and then nothing else; or cursors in (part_id, grp_id) order.
-- Writes:    partition_consumers, dead_letter_queue, retention_metrics.
CREATE OR REPLACE FUNCTION queen.evict_overdue_v1(
    p_queue_id bigint, p_part bigint[], p_messages int, p_wait bool, p_not_after timestamptz DEFAULT NULL
) RETURNS TABLE (part_id bigint, messages bigint, state text)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
    v_queue queen.queues;
    v_older timestamptz;
    v_waiting bigint[];            -- groups that begin later: what is overdue now is not for them
    v_cursor record;
    v_page refcursor;
    v_counts jsonb := '{}';
    v_given_up record;
    v_began timestamptz;
    v_portion int := queen.portion(clock_timestamp(), 0, p_messages);
    v_evicted bigint := 0;
    v_stopped bigint;
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM queen.consumer_groups_metadata AS g
        WHERE g.queue_id = p_queue_id AND (g.name <> '__QUEUE_MODE__' OR g.subscribed_upto = 9223372036854775807)
    ) THEN
        PERFORM queen.subscribe_v1(q.name, '__QUEUE_MODE__', 'all', NULL, false, true, 1000) FROM queen.queues AS q
        WHERE q.id = p_queue_id;
        -- It holds cursors until the commit; the queue row comes before them, hence in another call.
        RETURN QUERY SELECT u.part_id, 0::bigint, 'more' FROM unnest(p_part) AS u (part_id);
        RETURN;
    END IF;
    SELECT * INTO v_queue FROM queen.queues AS q WHERE q.id = p_queue_id AND q.max_wait_time_seconds > 0 FOR SHARE;
    PERFORM queen.begin_page(g.id, 1000)
    FROM (
        SELECT o.id FROM queen.consumer_groups_metadata AS o
        WHERE o.queue_id = p_queue_id AND o.starts_at < v_now AND o.subscribed_upto >= 0 ORDER BY o.id LIMIT 1
    ) AS g;
    IF FOUND THEN
        -- It holds the cursors of that page until the commit: others come in another call.
        RETURN QUERY SELECT u.part_id, 0::bigint, 'more' FROM unnest(p_part) AS u (part_id);
        RETURN;
    END IF;
    v_older := queen.older_than(make_interval(secs => v_queue.max_wait_time_seconds), p_not_after);
    v_waiting := ARRAY(
        SELECT g.id FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue_id AND g.starts_at IS NOT NULL);
    -- Not the parked ones: they have nothing to give up, and a push may want to wake them.
    IF p_wait THEN
        OPEN v_page FOR
            SELECT c.* FROM queen.partition_consumers AS c
            WHERE c.part_id = ANY(p_part) AND c.ready_at < 'infinity' AND c.grp_id <> ALL(v_waiting)
            ORDER BY c.part_id, c.grp_id FOR UPDATE;
    ELSE
        OPEN v_page FOR
            SELECT c.* FROM queen.partition_consumers AS c
            WHERE c.part_id = ANY(p_part) AND c.ready_at < 'infinity' AND c.grp_id <> ALL(v_waiting)
            ORDER BY c.part_id, c.grp_id FOR UPDATE SKIP LOCKED;
    END IF;
    LOOP
        FETCH v_page INTO v_cursor;
        EXIT WHEN NOT FOUND OR v_queue.id IS NULL;
        v_began := coalesce(v_began, clock_timestamp());
        LOOP
            IF v_portion <= 0 THEN
                v_stopped := v_cursor.part_id;
                EXIT;
            END IF;
            SELECT * INTO v_given_up FROM queen.give_up(v_queue, v_cursor.part_id, v_cursor.grp_id, v_older, v_portion, v_now);
            v_evicted := v_evicted + v_given_up.messages;
            v_counts := v_counts || jsonb_build_object(
                v_cursor.part_id, coalesce((v_counts ->> v_cursor.part_id::text)::bigint, 0) + v_given_up.messages);
            v_portion := queen.portion(v_began, v_evicted, p_messages);
            EXIT WHEN NOT v_given_up.more;
        END LOOP;
        EXIT WHEN v_stopped IS NOT NULL;
    END LOOP;
    CLOSE v_page;
    PERFORM queen.count_removed(v_queue.name, 0, 0, v_evicted);
    RETURN QUERY
    SELECT u.part_id, coalesce((v_counts ->> u.part_id::text)::bigint, 0),
        CASE
            WHEN u.part_id >= v_stopped THEN 'more'
            WHEN NOT p_wait AND o.part_ids IS NOT NULL THEN 'busy'
            ELSE 'done'
        END
    FROM unnest(p_part) AS u (part_id)
    -- What was passed over because somebody held it is overdue still.
    CROSS JOIN LATERAL (
        SELECT array_agg(c.grp_id) AS part_ids FROM queen.partition_consumers AS c
        WHERE c.part_id = u.part_id AND c.grp_id <> ALL(v_waiting) AND (c.lease IS NULL OR c.ready_at <= v_now) AND EXISTS (
            SELECT 1 FROM queen.segments AS s
            WHERE s.part_id = c.part_id AND s.last_off = (
                SELECT m.last_off FROM queen.segments AS m
                WHERE m.part_id = c.part_id AND m.last_off > c.acked ORDER BY m.last_off LIMIT 1
            ) AND s.created_at < v_older
        )
    ) AS o;
END $$;
COMMENT ON FUNCTION queen.evict_overdue_v1 IS 'Gives up messages that have waited longer than their queue allows.';

-- How many messages a transaction of eviction takes on next: 100 at first, then as many as all before, as long as that fits into
-- 6 ms as far as can be told, because consumers wait for their cursors; 0: it ends.
CREATE OR REPLACE FUNCTION queen.portion(p_began timestamptz, p_done bigint, p_most int) RETURNS int
LANGUAGE sql VOLATILE
RETURN CASE
    WHEN clock_timestamp() - p_began > interval '3 ms' THEN 0
    ELSE least(p_most - p_done, greatest(p_done, 100))::int
END;
COMMENT ON FUNCTION queen.portion IS 'Internal: how many messages a transaction of eviction takes on next.';

-- What one cursor gives up: undone messages created before p_older, those under a live lease left out. The caller holds it.
CREATE OR REPLACE FUNCTION queen.give_up(
    p_queue queen.queues, p_part bigint, p_grp bigint, p_older timestamptz, p_messages int, p_now timestamptz,
    OUT messages bigint, OUT more bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_cursor queen.partition_consumers;
    v_group text;
    v_segment record;
    v_from bigint;
    v_upto bigint;
    v_off bigint[];
BEGIN
    messages := 0;
    more := false;
    SELECT * INTO v_cursor FROM queen.partition_consumers AS c WHERE c.part_id = p_part AND c.grp_id = p_grp;
    SELECT g.name INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp;
    v_from := CASE
        WHEN v_cursor.lease IS NOT NULL AND v_cursor.ready_at > p_now THEN greatest(v_cursor.upto, v_cursor.acked)
        ELSE v_cursor.acked
    END;
    SELECT a.acked INTO v_from FROM queen.advance(v_from, v_cursor.ahead) AS a;
    v_upto := v_from;
    FOR v_segment IN
        SELECT s.last_off, s.created_at FROM queen.segments AS s
        WHERE s.part_id = p_part AND s.last_off > v_from ORDER BY s.last_off
    LOOP
        EXIT WHEN v_segment.created_at >= p_older OR more;
        v_upto := least(v_segment.last_off, v_from + p_messages);
        more := v_upto < v_segment.last_off;
    END LOOP;
    IF v_upto = v_from THEN
        RETURN;
    END IF;
    v_off := ARRAY(SELECT o FROM generate_series(v_from + 1, v_upto) AS o WHERE NOT coalesce(v_cursor.ahead @> o, false));
    messages := cardinality(v_off);
    IF coalesce(p_queue.dead_letter_queue, true) OR coalesce(p_queue.dlq_after_max_retries, true) THEN
        PERFORM queen.bury(
            p_queue.id, p_part, p_grp, v_group, v_off, array_fill('Maximum wait time exceeded'::text, ARRAY[messages::int]),
            ARRAY(SELECT coalesce((v_cursor.retries ->> o::text)::int, 0) FROM unnest(v_off) AS o), p_now);
    END IF;
    PERFORM queen.pass_over(p_part, p_grp, int8multirange(int8range(v_from + 1, v_upto, '[]')), p_now);
END $$;
COMMENT ON FUNCTION queen.give_up IS 'Internal: what a cursor gives up because it has waited too long.';
