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
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
    v_queue queen.queues;
    v_older timestamptz;
    v_waiting bigint[];            -- groups that begin later: what is overdue now is not for them
    v_upto bigint;                 -- the last offset of the partition that is overdue
    v_cursor record;
    v_page refcursor;
    v_given_up record;
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
    FOREACH part_id IN ARRAY p_part LOOP
        messages := 0;
        state := 'more';
        IF v_portion > 0 THEN
            v_upto := queen.last_before(part_id, v_older - interval '1 microsecond');
            -- Only those that have something to give up: each call makes progress, whatever the others are.
            IF p_wait THEN
                OPEN v_page FOR
                    SELECT c.grp_id FROM queen.partition_consumers AS c
                    WHERE c.part_id = evict_overdue_v1.part_id AND c.acked < v_upto AND queen.keeps_upto(c, v_now) < v_upto
                        AND c.grp_id <> ALL(v_waiting)
                    ORDER BY c.grp_id FOR UPDATE;
            ELSE
                OPEN v_page FOR
                    SELECT c.grp_id FROM queen.partition_consumers AS c
                    WHERE c.part_id = evict_overdue_v1.part_id AND c.acked < v_upto AND queen.keeps_upto(c, v_now) < v_upto
                        AND c.grp_id <> ALL(v_waiting)
                    ORDER BY c.grp_id FOR UPDATE SKIP LOCKED;
            END IF;
            LOOP
                FETCH v_page INTO v_cursor;
                EXIT WHEN NOT FOUND;
                v_began := coalesce(v_began, clock_timestamp());
                LOOP
                    SELECT * INTO v_given_up
                    FROM queen.give_up(v_queue, part_id, v_cursor.grp_id, v_upto, v_portion, v_now);
                    messages := messages + v_given_up.messages;
                    v_evicted := v_evicted + v_given_up.messages;
                    v_portion := queen.portion(v_began, v_evicted, p_messages);
                    EXIT WHEN v_portion <= 0 OR NOT v_given_up.more;
                END LOOP;
                EXIT WHEN v_portion <= 0;
            END LOOP;
            CLOSE v_page;
            state := CASE
                WHEN v_portion <= 0 THEN 'more'
                -- What was passed over because somebody held it is overdue still.
                WHEN NOT p_wait AND EXISTS (
                    SELECT 1 FROM queen.partition_consumers AS c
                    WHERE c.part_id = evict_overdue_v1.part_id AND c.acked < v_upto AND queen.keeps_upto(c, v_now) < v_upto
                        AND c.grp_id <> ALL(v_waiting)
                ) THEN 'busy'
                ELSE 'done'
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM queen.count_removed(v_queue.name, 0, 0, v_evicted);
END $$;
COMMENT ON FUNCTION queen.evict_overdue_v1 IS 'Gives up messages that have waited longer than their queue allows.';

-- Up to which offset a cursor gives nothing up: it is done, or under a live lease.
CREATE OR REPLACE FUNCTION queen.keeps_upto(p_cursor queen.partition_consumers, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_upto bigint := p_cursor.acked;
BEGIN
    IF p_cursor.lease IS NOT NULL AND p_cursor.ready_at > p_now THEN
        v_upto := greatest(v_upto, p_cursor.upto);
    END IF;
    IF p_cursor.ahead IS NOT NULL THEN
        SELECT a.acked INTO v_upto FROM queen.advance(v_upto, p_cursor.ahead) AS a;
    END IF;
    RETURN v_upto;
END $$;
COMMENT ON FUNCTION queen.keeps_upto IS 'Internal: up to which offset a cursor gives nothing up.';

-- How many messages a transaction of eviction takes on next: 100 at first, then as many as all before, as long as that fits into
-- 6 ms as far as can be told, because consumers wait for their cursors; 0: it ends.
CREATE OR REPLACE FUNCTION queen.portion(p_began timestamptz, p_done bigint, p_most int) RETURNS int
LANGUAGE sql VOLATILE
RETURN CASE
    WHEN clock_timestamp() - p_began > interval '3 ms' THEN 0
    ELSE least(p_most - p_done, greatest(p_done, 100))::int
END;
COMMENT ON FUNCTION queen.portion IS 'Internal: how many messages a transaction of eviction takes on next.';

-- What one cursor gives up: undone messages up to p_upto, those under a live lease left out. The caller holds it.
CREATE OR REPLACE FUNCTION queen.give_up(
    p_queue queen.queues, p_part bigint, p_grp bigint, p_upto bigint, p_messages int, p_now timestamptz,
    OUT messages bigint, OUT more bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_cursor queen.partition_consumers;
    -- Read from the row once, not per message: both may be large.
    v_ahead int8multirange;
    v_retries jsonb;
    v_group text;
    v_from bigint;
    v_upto bigint;
    v_off bigint[];
BEGIN
    SELECT * INTO v_cursor FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    SELECT g.name INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp;
    v_ahead := coalesce(v_cursor.ahead, '{}') + '{}'::int8multirange;
    v_retries := coalesce(v_cursor.retries, '{}') || '{}'::jsonb;
    v_from := queen.keeps_upto(v_cursor, p_now);
    v_upto := least(p_upto, v_from + p_messages);
    more := v_upto < p_upto;
    v_off := ARRAY(SELECT o FROM generate_series(v_from + 1, v_upto) AS o WHERE NOT v_ahead @> o);
    messages := cardinality(v_off);
    IF messages = 0 THEN
        RETURN;
    END IF;
    IF coalesce(p_queue.dead_letter_queue, true) OR coalesce(p_queue.dlq_after_max_retries, true) THEN
        PERFORM queen.bury(
            p_queue.id, p_part, p_grp, v_group, v_off, array_fill('Maximum wait time exceeded'::text, ARRAY[messages::int]),
            ARRAY(SELECT coalesce((v_retries ->> o::text)::int, 0) FROM unnest(v_off) AS o), p_now);
    END IF;
    PERFORM queen.pass_over(p_part, p_grp, int8multirange(int8range(v_from + 1, v_upto, '[]')), p_now);
END $$;
COMMENT ON FUNCTION queen.give_up IS 'Internal: what a cursor gives up because it has waited too long.';
