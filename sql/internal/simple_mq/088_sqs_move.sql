-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- The messages of a queue that a move task takes next: visible ones that were there when it began, since what comes
-- back from the destination has a newer id. In a FIFO queue whole groups, of which nothing is in flight.
CREATE OR REPLACE FUNCTION simple_mq.sqs_movable(p_queue simple_mq.sqs_queues, p_before uuid, p_limit int)
RETURNS TABLE (message_id uuid, message_group text, source_id uuid)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH leaders AS (
        SELECT l.message_id, l.message_group, l.source_id FROM (
            (
                SELECT m.message_id, m.message_group, m.source_id FROM simple_mq.messages AS m
                WHERE m.queue_id = p_queue.store_id AND m.state = 'r' AND m.message_id < p_before
                ORDER BY m.message_id LIMIT p_limit
            )
            UNION ALL
            (
                SELECT m.message_id, m.message_group, m.source_id FROM simple_mq.messages AS m
                WHERE m.queue_id = p_queue.store_id AND m.state = 'w' AND m.message_id < p_before
                ORDER BY m.message_id LIMIT p_limit
            )
        ) AS l
        ORDER BY l.message_id LIMIT p_limit
    )
    SELECT f.message_id, f.message_group, f.source_id FROM (
        SELECT l.message_id, l.message_group, l.source_id, l.message_id AS leader FROM leaders AS l
        UNION ALL
        SELECT b.message_id, l.message_group, b.source_id, l.message_id FROM leaders AS l
        CROSS JOIN LATERAL (
            SELECT m.message_id, m.source_id FROM simple_mq.messages AS m
            WHERE p_queue.fifo AND m.queue_id = p_queue.store_id AND m.message_group = l.message_group AND m.state = 'b'
                AND m.message_id < p_before
            ORDER BY m.message_id LIMIT p_limit
        ) AS b
    ) AS f
    ORDER BY f.leader, f.message_id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_movable IS 'Internal: the next messages of a move task.';

-- Moves messages of a queue, each to its destination (null: it stays), as new messages in the order of their ids.
-- Returns:   how many moved; null: a destination is gone.
-- Locks:     groups, messages with SKIP LOCKED, counts (shard 0 of the destinations, then own shards). The caller holds
--            the rows of the queues.
CREATE OR REPLACE FUNCTION simple_mq.sqs_move_to(
    p_source simple_mq.sqs_queues, p_messages uuid[], p_groups text[], p_destinations uuid[]
) RETURNS int
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_name CONSTANT uuid := gen_random_uuid();
    v_now timestamptz;
    v_here uuid[];
    v_moved int;
BEGIN
    IF p_source.fifo THEN
        PERFORM simple_mq.lock_groups(array_agg(l.store_id), array_agg(l.name)) FROM (
            SELECT q.store_id, u.name FROM unnest(p_groups, p_destinations) AS u (name, queue_id)
            JOIN simple_mq.sqs_queues AS q ON q.queue_id = u.queue_id
            UNION ALL SELECT p_source.store_id, u.name FROM unnest(p_groups) AS u (name)
        ) AS l;
    END IF;
    v_here := ARRAY(
        SELECT m.message_id FROM unnest(p_messages) AS u (message_id)
        CROSS JOIN LATERAL (
            SELECT l.message_id FROM simple_mq.messages AS l
            WHERE l.queue_id = p_source.store_id AND l.message_id = u.message_id
                AND CASE l.state WHEN 't' THEN false WHEN 'd' THEN false ELSE true END
            FOR UPDATE SKIP LOCKED
        ) AS m
    );
    v_now := simple_mq.sqs_lock_counts(ARRAY(
        SELECT q.store_id FROM simple_mq.sqs_queues AS q WHERE q.queue_id = ANY(p_destinations)
    ));
    WITH moved AS (
        UPDATE simple_mq.messages AS m
        SET
            queue_id = u.store_id, message_id = simple_mq.message_id(v_now, v_name, u.place), created_at = v_now,
            visible_at = CASE WHEN u.fifo THEN v_now ELSE v_now + make_interval(secs => u.delay) END,
            state = CASE WHEN u.delay > 0 OR u.late THEN 'd' WHEN u.fifo THEN 'b' ELSE 'w' END,
            delivery_count = 0, earlier_receives = NULL, first_received_at = NULL, source_id = NULL, sent_id = NULL
        FROM (
            SELECT
                h.message_id, q.store_id, q.fifo, q.delay, row_number() OVER (ORDER BY h.message_id)::int AS place,
                q.fifo AND EXISTS (
                    SELECT 1 FROM simple_mq.messages AS d WHERE d.queue_id = q.store_id AND d.state = 'd'
                ) AS late
            FROM unnest(v_here) AS h (message_id)
            JOIN unnest(p_messages, p_destinations) AS u (message_id, queue_id) ON u.message_id = h.message_id
            JOIN simple_mq.sqs_queues AS q ON q.queue_id = u.queue_id
        ) AS u
        WHERE m.queue_id = ANY(ARRAY[p_source.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        RETURNING m.queue_id, m.state
    ), counted AS (
        UPDATE simple_mq.counts AS c
        SET messages = c.messages + u.messages, delayed = c.delayed + u.delayed, last_at = v_now
        FROM (
            SELECT s.queue_id, count(*) AS messages, count(*) FILTER (WHERE s.state = 'd') AS delayed
            FROM moved AS s GROUP BY s.queue_id
        ) AS u
        WHERE c.queue_id = u.queue_id AND c.shard = 0
    )
    SELECT count(*) INTO v_moved FROM moved;
    PERFORM simple_mq.sqs_settle(array_agg(l.store_id), array_agg(l.name)) FROM (
        SELECT q.store_id, u.name FROM unnest(p_groups, p_destinations) AS u (name, queue_id)
        JOIN simple_mq.sqs_queues AS q ON q.queue_id = u.queue_id
        UNION ALL SELECT p_source.store_id, u.name FROM unnest(p_groups) AS u (name)
    ) AS l
    WHERE p_source.fifo HAVING count(*) > 0;
    PERFORM simple_mq.sqs_count(
        ARRAY[p_source.store_id], ARRAY[-v_moved::bigint], ARRAY[0::bigint], ARRAY[0::bigint]) WHERE v_moved > 0;
    RETURN v_moved;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_move_to IS 'Internal: moves messages of a queue as new ones.';
