-- Purpose:   the next partitions of a queue, by name, in which a message has waited longer than max_wait_time_seconds.
-- Arguments: p_after  name after which to look; p_limit  partitions to look at; p_not_after  see queen.older_than
-- Returns:   last_name, to go on from (null: that was all), and the partitions.
CREATE OR REPLACE FUNCTION queen.find_overdue_v1(
    p_queue_id bigint, p_after text, p_limit int, p_not_after timestamptz DEFAULT NULL,
    OUT last_name text, OUT part_ids bigint[]
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
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
            WHERE s.part_id = u.id AND s.n > 0
                AND s.last_off > coalesce(queen.lowest_cursor(u.id), -1)
            ORDER BY s.last_off LIMIT 1
        ) < e.older, false) AS overdue
    ) AS o;
END $$;
COMMENT ON FUNCTION queen.find_overdue_v1 IS 'The next partitions of a queue that have messages to evict.';

-- Purpose:   gives up, for each group that has not done them, messages that have waited longer than
--            max_wait_time_seconds, unless they are under a live lease. They leave a dead letter, unless the queue
--            keeps none. A queue without a group gets the group of queue mode, which gives them up.
-- Arguments: p_part  partitions of one queue, ascending; p_messages at most, and fewer if they
--            take longer than 6 ms (queen.portion); p_wait whether to wait for
--            cursors that consumers hold, or to pass them over; p_not_after see queen.older_than
-- Returns:   one row per partition: the messages given up, and state: done, more, or busy.
-- Locks:     as subscribe_v1, if the queue has no group, and then nothing else; or the queue row FOR SHARE; then a page
--            of a group that should have begun by now or lacks cursors (queen.begin_page), and then nothing else; or
--            cursors in (part_id, grp_id) order.
-- Writes:    partition_consumers, dead_letter_queue, retention_metrics.
CREATE OR REPLACE FUNCTION queen.evict_overdue_v1(
    p_queue_id bigint, p_part bigint[], p_messages int, p_wait bool, p_not_after timestamptz DEFAULT NULL
) RETURNS TABLE (part_id bigint, messages bigint, state text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_queue queen.queues;
    v_older timestamptz;
    v_waiting bigint[];            -- groups that begin later: what is overdue now is not for them
    v_began timestamptz;
    v_portion int := queen.portion(clock_timestamp(), 0, p_messages);
    v_evicted bigint := 0;
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
    IF NOT FOUND THEN
        RETURN QUERY SELECT u.part_id, 0::bigint, 'done' FROM unnest(p_part) AS u (part_id);
        RETURN;
    END IF;
    PERFORM queen.begin_page(g.id, 1000)
    FROM (
        SELECT o.id FROM queen.consumer_groups_metadata AS o
        WHERE o.queue_id = p_queue_id AND o.subscribed_upto >= 0 AND (
            o.starts_at < v_now OR (o.starts_at IS NULL AND o.subscribed_upto < 9223372036854775807))
        ORDER BY o.id LIMIT 1
    ) AS g;
    IF FOUND THEN
        -- It holds the cursors of that page until the commit: others come in another call.
        RETURN QUERY SELECT u.part_id, 0::bigint, 'more' FROM unnest(p_part) AS u (part_id);
        RETURN;
    END IF;
    v_older := queen.older_than(make_interval(secs => v_queue.max_wait_time_seconds), p_not_after);
    v_waiting := ARRAY(
        SELECT g.id FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue_id AND g.starts_at IS NOT NULL);
    FOREACH part_id IN ARRAY p_part LOOP
        messages := 0;
        state := 'more';
        IF v_portion > 0 THEN
            SELECT * INTO messages, state, v_began, v_evicted, v_portion
            FROM queen.evict_from_partition(
                v_queue, part_id, v_older, v_waiting, p_messages, p_wait, v_now, v_began, v_evicted, v_portion);
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM queen.count_removed(v_queue.name, 0, 0, v_evicted);
END $$;
COMMENT ON FUNCTION queen.evict_overdue_v1 IS 'Evicts messages that have waited longer than their queue allows.';
