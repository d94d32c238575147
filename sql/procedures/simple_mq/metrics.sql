-- Purpose:   the gauges of queues, at most p_limit, those that were made first.
-- Returns:   one row per queue: whether it holds dead letters, its message count, the messages in flight, and the age
--            in seconds of the oldest message that could be delivered (0: none).
CREATE OR REPLACE FUNCTION simple_mq.gauges_v1(p_limit int)
RETURNS TABLE (queue_id uuid, dead_letters bool, depth bigint, in_flight bigint, oldest_age float8)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN QUERY
    SELECT
        q.queue_id, q.parent_id IS NOT NULL, simple_mq.message_count(q.queue_id),
        (
            SELECT count(*) FROM simple_mq.messages AS m
            WHERE m.queue_id = q.queue_id AND m.state = 't' AND m.visible_at > v_now
        ),
        coalesce(greatest(extract(epoch FROM v_now - least(
            (
                SELECT m.created_at FROM simple_mq.messages AS m
                WHERE m.queue_id = q.queue_id AND m.state = 'w' AND m.created_at >= h.waiting_from
                    AND m.message_id >= CASE WHEN h.waiting_from > '1970-01-01'
                        THEN simple_mq.uuid_at(h.waiting_from, '0000000000000000')
                        ELSE '00000000-0000-0000-0000-000000000000' END
                ORDER BY m.message_id LIMIT 1
            ),
            (
                SELECT m.created_at FROM simple_mq.messages AS m
                WHERE m.queue_id = q.queue_id AND m.state = 'r' ORDER BY m.message_id LIMIT 1
            ),
            (
                SELECT min(m.created_at) FROM simple_mq.messages AS m
                WHERE m.queue_id = q.queue_id AND m.state = 't' AND m.visible_at <= v_now
                    AND (m.delivery_count < q.max_deliveries OR q.parent_id IS NOT NULL)
            )
        )), 0), 0)::float8
    FROM simple_mq.queues AS q
    JOIN simple_mq.heads AS h ON h.queue_id = q.queue_id
    ORDER BY q.queue_id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.gauges_v1 IS 'Depth, messages in flight and age of the oldest waiting message of queues.';

-- Purpose:   the gauges of queues of SQS, at most p_limit, by name.
-- Returns:   one row per queue: its messages as simple_mq.sqs_figures_v1 has them, and the age in seconds of the oldest
--            one in any state (0: none).
CREATE OR REPLACE FUNCTION simple_mq.sqs_gauges_v1(p_limit int)
RETURNS TABLE (queue_id uuid, queue_name text, visible bigint, in_flight bigint, delayed bigint, oldest_age float8)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN QUERY
    SELECT
        q.queue_id, q.queue_name, f.visible, f.in_flight, f.delayed,
        coalesce(greatest(extract(epoch FROM v_now - (
            SELECT m.created_at FROM simple_mq.messages AS m
            WHERE m.queue_id = q.store_id ORDER BY m.message_id LIMIT 1
        )), 0), 0)::float8
    FROM simple_mq.sqs_queues AS q CROSS JOIN LATERAL simple_mq.sqs_figures_v1(q.queue_id) AS f
    ORDER BY q.queue_name LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_gauges_v1 IS 'Messages of queues of SQS, and the age of the oldest.';

-- Purpose:   adds to the counters of queues; those of a queue that is gone are dropped.
-- Arguments: by counter: p_queue (the nil UUID: no queue), p_operation, p_outcome, p_number.
CREATE OR REPLACE FUNCTION simple_mq.count_outcomes_v1(
    p_queue uuid[], p_operation text[], p_outcome text[], p_number bigint[]
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    -- If the queue is being deleted, its counters go with it: the deletion waits for this lock, or this finds no queue.
    PERFORM 1 FROM simple_mq.queues AS q WHERE q.queue_id = ANY(p_queue) ORDER BY q.queue_id FOR KEY SHARE;
    PERFORM 1 FROM simple_mq.sqs_queues AS q WHERE q.queue_id = ANY(p_queue) ORDER BY q.queue_id FOR KEY SHARE;
    INSERT INTO simple_mq.outcomes AS o (queue_id, operation, outcome, total)
    SELECT u.queue_id, u.operation, u.outcome, u.number
    FROM unnest(p_queue, p_operation, p_outcome, p_number) AS u (queue_id, operation, outcome, number)
    WHERE u.queue_id = '00000000-0000-0000-0000-000000000000'
        OR EXISTS (SELECT 1 FROM simple_mq.queues AS q WHERE q.queue_id = u.queue_id)
        OR EXISTS (SELECT 1 FROM simple_mq.sqs_queues AS q WHERE q.queue_id = u.queue_id)
    ORDER BY u.queue_id, u.operation, u.outcome
    ON CONFLICT (queue_id, operation, outcome) DO UPDATE SET total = o.total + excluded.total;
END $$;
COMMENT ON FUNCTION simple_mq.count_outcomes_v1 IS 'Adds to the counters of queues.';
