-- Purpose:   does the next step of a repair after the clock has stepped back. It repairs times in the future that no
--            setting explains. It sets back ends of leases and times of retries by as much as the clock was, but not
--            before now, and times of timers that were set with a delay, makes pops compute delays again, and sets the time of messages that were created in the future
--            to now.
-- Arguments: p_partitions, p_rows  partitions, and segments or messages of a simple-mq queue, that one call takes at most
-- Returns:   whether there is more to do. Each place is repaired once, by the call that notes it in queen.clock.
-- Locks:     clock; then partitions in part_id order, cursors in (part_id, grp_id) order, stream_state; or messages of
--            one simple-mq queue in the order of their ids; or groups and timers.
-- Writes:    segments, partition_consumers, stream_state, consumer_groups_metadata, timers, schedules; simple_mq.messages, heads.
CREATE OR REPLACE FUNCTION queen.repair_times_v1(p_partitions int, p_rows int) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz := queen.clock();
    v_clock queen.clock;
    v_parts bigint[];
    v_done bigint;
BEGIN
    SELECT * INTO v_clock FROM queen.clock AS c WHERE c.repaired_part IS NOT NULL FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_parts := ARRAY(
        SELECT p.id FROM queen.partitions AS p WHERE p.id > v_clock.repaired_part ORDER BY p.id LIMIT p_partitions);
    IF v_parts <> '{}' THEN
        v_done := queen.repair_log(v_parts, p_rows);
        -- A partition with more segments than one call takes comes again; what follows it has not had its turn.
        v_parts := ARRAY(SELECT u.id FROM unnest(v_parts) AS u (id) WHERE u.id <= v_done);
        PERFORM queen.repair_cursors(v_parts, v_clock.set_back);
        UPDATE queen.stream_state AS s SET updated_at = v_now WHERE s.part_id = ANY(v_parts) AND s.updated_at > v_now;
        UPDATE queen.clock SET repaired_part = greatest(repaired_part, v_done);
        RETURN true;
    END IF;
    IF queen.repair_simple_mq(v_clock, p_rows) THEN
        RETURN true;
    END IF;
    UPDATE queen.consumer_groups_metadata AS g SET since = v_now WHERE g.subscription_mode = 'new' AND g.since > v_now;
    -- All at once: only those that were accepted by the clock ahead, and with a delay.
    UPDATE queen.timers AS t
    SET deliver_at = greatest(v_now, t.deliver_at - make_interval(secs => v_clock.set_back)), asked_at = v_now
    WHERE t.asked_at > v_now;
    UPDATE queen.schedules AS s SET last_at = v_now, next_at = v_now WHERE s.last_at > v_now;
    UPDATE queen.clock SET set_back = 0, repaired_part = NULL, repaired_queue = NULL, repaired_at = NULL;
    RETURN false;
END $$;
COMMENT ON FUNCTION queen.repair_times_v1 IS 'Repairs times that a step back of the clock has left in the future.';

-- Repairs messages created later than now, partition by partition, lowest offset first, so that concurrent reads never
-- see created_at fall along a partition. Returns the partition up to which none are left.
CREATE OR REPLACE FUNCTION queen.repair_log(p_part bigint[], p_segments int) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_part bigint;
    v_now timestamptz;
    v_left int := p_segments;
    v_rows int;
    v_first bigint;
    v_upto bigint;
    v_done bigint := p_part[1] - 1;
BEGIN
    FOREACH v_part IN ARRAY p_part LOOP
        IF v_left > 0 AND (SELECT e.last_at FROM queen.log_ends AS e WHERE e.part_id = v_part) > queen.clock() THEN
            -- A push reads the end of the log under this lock. What the clock shows now is later than all that was
            -- pushed by it.
            PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = v_part FOR NO KEY UPDATE;
            v_now := queen.clock();
            -- Not later: the newest segment may have no messages, and then ends where the one before it does.
            v_first := queen.last_before(v_part, v_now);
            SELECT max(u.last_off) INTO v_upto FROM (
                SELECT s.last_off FROM queen.segments AS s
                WHERE s.part_id = v_part AND s.last_off >= v_first AND s.created_at > v_now ORDER BY s.last_off LIMIT v_left
            ) AS u;
            UPDATE queen.segments AS s SET created_at = v_now
            WHERE s.part_id = v_part AND s.last_off BETWEEN v_first AND v_upto AND s.created_at > v_now;
            GET DIAGNOSTICS v_rows = ROW_COUNT;
            v_left := v_left - v_rows;
            EXIT WHEN EXISTS (SELECT 1 FROM queen.segments AS s WHERE s.part_id = v_part AND s.last_off > v_upto);
        END IF;
        EXIT WHEN v_left <= 0;
        v_done := v_part;
    END LOOP;
    RETURN v_done;
END $$;
COMMENT ON FUNCTION queen.repair_log IS 'Internal: repairs created_at of messages.';

-- Cursors whose lease, retry or delay ends later than the options of their queue explain. They are locked before the
-- clock is asked: a lease that was given meanwhile is explained.
CREATE OR REPLACE FUNCTION queen.repair_cursors(p_part bigint[], p_set_back float8) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.part_id = ANY(p_part) AND isfinite(c.ready_at) AND c.ready_at > v_now
    ORDER BY c.part_id, c.grp_id FOR UPDATE;
    v_now := queen.write_clock();
    UPDATE queen.partition_consumers AS c
    SET ver = c.ver + 1, retry_at = u.retry_at, ready_at = greatest(v_now, CASE
        WHEN c.lease IS NOT NULL THEN c.ready_at - make_interval(secs => p_set_back)
        ELSE u.retry_at
    END)
    FROM (
        SELECT l.part_id, l.grp_id, CASE
            WHEN l.retry_at > v_now + make_interval(secs => o.retry_delay) THEN l.retry_at - make_interval(secs => p_set_back)
            ELSE l.retry_at
        END AS retry_at
        FROM queen.partition_consumers AS l
        JOIN queen.consumer_groups_metadata AS g ON g.id = l.grp_id
        JOIN queen.queues AS q ON q.id = g.queue_id
        CROSS JOIN LATERAL (SELECT coalesce(q.retry_delay, 0) / 1000.0 AS retry_delay) AS o
        WHERE l.part_id = ANY(p_part) AND isfinite(l.ready_at) AND l.ready_at > v_now + make_interval(secs => CASE
            WHEN l.lease IS NOT NULL THEN coalesce(nullif(q.lease_time, 0), 60)
            ELSE greatest(q.delayed_processing, q.window_buffer, o.retry_delay)
        END)
    ) AS u
    WHERE c.part_id = u.part_id AND c.grp_id = u.grp_id;
END $$;
COMMENT ON FUNCTION queen.repair_cursors IS 'Internal: repairs lease ends and ready times of cursors.';

-- Repairs messages in flight that are hidden longer than their queue of simple-mq allows; and of a queue of SQS, where
-- each receive may say for how long, those in flight or delayed that began when the clock was ahead, as far as their
-- other times tell it. One queue per call, in ascending order, so that repaired messages fall behind the stored position.
-- Returns whether there may be more.
CREATE OR REPLACE FUNCTION queen.repair_simple_mq(p_clock queen.clock, p_rows int) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue record;
    v_from timestamptz;
    v_upto timestamptz;
    v_ids uuid[];
    v_now timestamptz;
BEGIN
    SELECT q.queue_id, make_interval(secs => q.visibility_timeout) AS timeout, q.sqs INTO v_queue
    FROM (
        SELECT s.queue_id, s.visibility_timeout, false AS sqs FROM simple_mq.queues AS s
        UNION ALL
        SELECT s.store_id, s.visibility_timeout, true FROM simple_mq.sqs_queues AS s
    ) AS q
    WHERE q.queue_id >= coalesce(p_clock.repaired_queue, '00000000-0000-0000-0000-000000000000')
        AND (q.queue_id > p_clock.repaired_queue OR p_clock.repaired_at < 'infinity' OR p_clock.repaired_queue IS NULL)
    ORDER BY q.queue_id LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_from := greatest(
        queen.clock() + CASE WHEN v_queue.sqs THEN interval '0' ELSE v_queue.timeout END,
        CASE WHEN v_queue.queue_id = p_clock.repaired_queue THEN p_clock.repaired_at END);
    -- All that end at once, so that the place is between two times.
    SELECT max(u.visible_at) INTO v_upto FROM (
        SELECT b.visible_at FROM (
            (SELECT m.visible_at FROM simple_mq.messages AS m
            WHERE m.queue_id = v_queue.queue_id AND m.state = 't' AND m.visible_at > v_from
            ORDER BY m.visible_at LIMIT p_rows)
            UNION ALL
            (SELECT m.visible_at FROM simple_mq.messages AS m
            WHERE m.queue_id = v_queue.queue_id AND m.state = 'd' AND m.visible_at > v_from
            ORDER BY m.visible_at LIMIT p_rows)
        ) AS b ORDER BY b.visible_at LIMIT p_rows
    ) AS u;
    v_ids := ARRAY(
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue.queue_id AND m.state = 't' AND m.visible_at > v_from AND m.visible_at <= v_upto
        UNION ALL
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue.queue_id AND m.state = 'd' AND m.visible_at > v_from AND m.visible_at <= v_upto);
    PERFORM 1 FROM simple_mq.messages AS m
    WHERE m.queue_id = v_queue.queue_id AND m.message_id = ANY(v_ids) ORDER BY m.message_id FOR UPDATE;
    v_now := queen.clock();
    UPDATE simple_mq.messages AS m SET visible_at = greatest(v_now, m.visible_at - make_interval(secs => p_clock.set_back))
    WHERE m.queue_id = v_queue.queue_id AND m.message_id = ANY(v_ids) AND m.visible_at > v_from AND m.visible_at <= v_upto
        AND CASE
            WHEN m.state = 'd' THEN m.created_at > v_now
            WHEN m.state <> 't' THEN false
            WHEN v_queue.sqs AND m.delivery_count = 1 THEN m.first_received_at > v_now
            ELSE m.visible_at > v_now + v_queue.timeout
        END;
    UPDATE simple_mq.heads AS h SET checked_at = v_now WHERE h.queue_id = v_queue.queue_id AND h.checked_at > v_now;
    UPDATE queen.clock SET repaired_queue = v_queue.queue_id, repaired_at = coalesce(v_upto, 'infinity');
    RETURN true;
END $$;
COMMENT ON FUNCTION queen.repair_simple_mq IS 'Internal: repairs visibility timeouts of messages of simple-mq and SQS, and delays of SQS.';
