-- Purpose:   sets a cron schedule of a queue, or replaces the one with its name. The queue is created if it is missing.
-- Arguments: p_message   the object of its messages, without transaction id
--            p_now, p_next   the time from which on it counts, and its first time after that
--            p_version   of queen.push_options, under which the message was encrypted
-- Returns:   whether there was none with the name; null: the options have changed, and nothing was done.
-- Locks:     the queue FOR KEY SHARE, so that it is not deleted meanwhile.
-- Writes:    schedules, queues
CREATE OR REPLACE FUNCTION queen.set_schedule_v1(
    p_queue text, p_name text, p_cron text, p_time_zone text, p_catch_up int, p_partition text, p_message text,
    p_now timestamptz, p_next timestamptz, p_version bigint
) RETURNS bool
LANGUAGE plpgsql
AS $$
DECLARE
    v_queue bigint;
    v_made bool;
BEGIN
    IF (SELECT o.version FROM queen.push_options AS o WHERE o.id) <> p_version THEN
        RETURN NULL;
    END IF;
    PERFORM queen.make_queues(ARRAY[p_queue]);
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR KEY SHARE;
    IF v_queue IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO queen.schedules AS s (
        queue_id, name, cron, time_zone, catch_up, partition, message, last_at, next_at)
    VALUES (v_queue, p_name, p_cron, p_time_zone, p_catch_up, p_partition, p_message, p_now, p_next)
    ON CONFLICT (queue_id, name) DO UPDATE
    SET cron = excluded.cron, time_zone = excluded.time_zone, catch_up = excluded.catch_up,
        partition = excluded.partition, message = excluded.message,
        -- An application may set it at each start: no time is missed for that.
        last_at = CASE WHEN s.cron = excluded.cron AND s.time_zone = excluded.time_zone THEN s.last_at ELSE excluded.last_at END,
        next_at = CASE WHEN s.cron = excluded.cron AND s.time_zone = excluded.time_zone THEN s.next_at ELSE excluded.next_at END
    RETURNING s.xmax = 0 INTO v_made;
    RETURN v_made;
END $$;
COMMENT ON FUNCTION queen.set_schedule_v1 IS 'Sets a cron schedule of a queue.';

-- Purpose:   the schedules of a queue, or of all (p_queue null), by queue and name.
CREATE OR REPLACE FUNCTION queen.list_schedules_v1(p_queue text, p_limit int, p_offset int)
RETURNS TABLE (
    queue text, name text, cron text, time_zone text, catch_up int, partition text, message text, next_at timestamptz
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.name, s.name, s.cron, s.time_zone, s.catch_up, s.partition, s.message, s.next_at
    FROM queen.schedules AS s JOIN queen.queues AS q ON q.id = s.queue_id
    WHERE p_queue IS NULL OR q.name = p_queue
    ORDER BY q.name, s.name LIMIT p_limit OFFSET p_offset;
END;
COMMENT ON FUNCTION queen.list_schedules_v1 IS 'Cron schedules, by queue and name.';

-- Purpose:   deletes a schedule; what has become a timer stays.
-- Returns:   whether there was one.
CREATE OR REPLACE FUNCTION queen.delete_schedule_v1(p_queue text, p_name text) RETURNS bool
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.schedules AS s USING queen.queues AS q
    WHERE q.name = p_queue AND s.queue_id = q.id AND s.name = p_name;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.delete_schedule_v1 IS 'Deletes a cron schedule.';

-- Purpose:   the schedules that have to be looked at now, the longest due first.
CREATE OR REPLACE FUNCTION queen.read_schedules_v1(p_limit int)
RETURNS TABLE (
    queue_id bigint, name text, cron text, time_zone text, catch_up int, last_at timestamptz, next_at timestamptz,
    now timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN QUERY
    SELECT s.queue_id, s.name, s.cron, s.time_zone, s.catch_up, s.last_at, s.next_at, v_now
    FROM queen.schedules AS s WHERE s.next_at <= v_now ORDER BY s.next_at LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.read_schedules_v1 IS 'Cron schedules whose time has come.';

-- Purpose:   makes timers of times of schedules, which are due, and notes up to when their times are done: both or nothing,
--            and never twice. The transaction id of each message is the name of the schedule, @, and the time in UTC.
-- Arguments: p_queue_id, p_name   the schedules, one element each; and of each:
--            p_cron, p_time_zone, p_catch_up, p_last_at, p_seen   as read_schedules_v1 has returned them (p_seen: next_at)
--            p_now    up to when its times are done; p_next: when to look again
--            p_of, p_times   the times that fire, and the number of the schedule of each, from 1
-- Returns:   how many schedules fired. The others were done already, or are being changed, or are others now.
-- Locks, writes: the schedules, with SKIP LOCKED; timers
CREATE OR REPLACE FUNCTION queen.fire_schedules_v1(
    p_queue_id bigint[], p_name text[], p_cron text[], p_time_zone text[], p_catch_up int[], p_last_at timestamptz[],
    p_seen timestamptz[], p_now timestamptz[], p_next timestamptz[], p_of int[], p_times timestamptz[]
) RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_fired int[];
BEGIN
    SELECT array_agg(u.ord) INTO v_fired
    FROM unnest(p_queue_id, p_name, p_cron, p_time_zone, p_catch_up, p_last_at, p_seen)
        WITH ORDINALITY AS u (queue_id, name, cron, time_zone, catch_up, last_at, seen, ord)
    CROSS JOIN LATERAL (
        SELECT 1 FROM queen.schedules AS s
        WHERE s.queue_id = u.queue_id AND s.name = u.name AND s.next_at = u.seen AND s.last_at = u.last_at
            AND s.cron = u.cron AND s.time_zone = u.time_zone AND s.catch_up = u.catch_up
        FOR UPDATE SKIP LOCKED
    ) AS l;
    INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)
    SELECT i.at, i.queue_id, gen_random_uuid()::text, i.partition, i.id,
        format('{"transactionId":%s,%s', to_json(i.id), substr(i.message, 2))
    FROM (
        SELECT t.at, t.of, s.queue_id, s.partition, s.message,
            s.name || to_char(t.at AT TIME ZONE 'UTC', '@YYYY-MM-DD"T"HH24:MI:SS"Z"') AS id
        FROM unnest(p_of, p_times) AS t (of, at)
        JOIN queen.schedules AS s ON s.queue_id = ANY(ARRAY[p_queue_id[t.of]]) AND s.name = p_name[t.of]
        WHERE t.of = ANY(v_fired)
    ) AS i
    ORDER BY i.at, i.of;
    UPDATE queen.schedules AS s SET last_at = u.now, next_at = u.next
    FROM unnest(p_queue_id, p_name, p_now, p_next) WITH ORDINALITY AS u (queue_id, name, now, next, ord)
    WHERE s.queue_id = ANY(ARRAY[u.queue_id]) AND s.name = u.name AND u.ord = ANY(v_fired);
    RETURN coalesce(cardinality(v_fired), 0);
END $$;
COMMENT ON FUNCTION queen.fire_schedules_v1 IS 'Makes timers of the times of cron schedules.';
