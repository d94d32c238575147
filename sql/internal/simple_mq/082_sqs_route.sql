-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- What time has done to a queue of SQS, at most 1000 messages of each kind: delayed messages whose time has come are
-- ready, and so are those in flight whose visibility timeout is over, or they are dead letters after their last
-- receive. In a FIFO queue only groups whose lock is free, or if p_wait all, waiting.
-- Returns:   the dead-letter queue and how many went there; what to add to the counts (simple_mq.sqs_count).
-- Locks:     the row of the dead-letter queue FOR KEY SHARE, groups, messages with SKIP LOCKED.
CREATE OR REPLACE FUNCTION simple_mq.sqs_route(
    p_queue simple_mq.sqs_queues, p_now timestamptz, p_wait bool,
    OUT dlq_id uuid, OUT dead int, OUT dlq_store uuid, OUT ended int, OUT begun int
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_due uuid[] := ARRAY(
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_queue.store_id AND m.state = 't' AND m.visible_at <= p_now ORDER BY m.visible_at LIMIT 1000
    );
    v_delayed uuid[] := ARRAY(
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_queue.store_id AND m.state = 'd' AND m.visible_at <= simple_mq.sqs_due_from(p_queue, p_now)
        ORDER BY m.visible_at, m.message_id LIMIT 1000
    );
    v_groups text[];
BEGIN
    dead := 0;
    ended := 0;
    begun := 0;
    IF cardinality(v_due) + cardinality(v_delayed) = 0 THEN
        RETURN;
    END IF;
    IF cardinality(v_due) > 0 AND p_queue.max_receives IS NOT NULL THEN
        SELECT q.queue_id, q.store_id INTO dlq_id, dlq_store FROM simple_mq.sqs_queues AS q
        WHERE q.queue_name = p_queue.dlq_name AND q.queue_id <> p_queue.queue_id AND q.fifo = p_queue.fifo FOR KEY SHARE;
    END IF;
    IF p_queue.fifo THEN
        SELECT l.messages, l.names INTO v_due, v_groups
        FROM simple_mq.sqs_lock_due(p_queue.store_id, dlq_store, v_due || v_delayed, p_wait) AS l;
        v_delayed := v_due;
    END IF;
    WITH due AS (
        SELECT
            m.message_id,
            dlq_store IS NOT NULL AND m.delivery_count - coalesce(m.earlier_receives, 0) >= p_queue.max_receives AS last
        FROM unnest(v_due) AS u (message_id)
        CROSS JOIN LATERAL (
            SELECT t.message_id, t.delivery_count, t.earlier_receives FROM simple_mq.messages AS t
            WHERE t.queue_id = p_queue.store_id AND t.message_id = u.message_id
                AND CASE t.state WHEN 't' THEN t.visible_at <= p_now END
            FOR UPDATE SKIP LOCKED
        ) AS m
    ), judged AS (
        UPDATE simple_mq.messages AS m
        SET
            queue_id = CASE WHEN due.last THEN dlq_store ELSE m.queue_id END,
            state = CASE WHEN p_queue.fifo THEN 'b' ELSE 'r' END,
            source_id = CASE WHEN due.last THEN p_queue.queue_id ELSE m.source_id END,
            earlier_receives = CASE WHEN due.last THEN m.delivery_count ELSE m.earlier_receives END
        FROM due WHERE m.queue_id = ANY(ARRAY[p_queue.store_id]) AND m.message_id = ANY(ARRAY[due.message_id])
        RETURNING due.last
    )
    SELECT count(*), count(*) FILTER (WHERE j.last) INTO ended, dead FROM judged AS j;
    WITH due AS (
        SELECT m.message_id
        FROM unnest(v_delayed) AS u (message_id)
        CROSS JOIN LATERAL (
            SELECT d.message_id FROM simple_mq.messages AS d
            WHERE d.queue_id = p_queue.store_id AND d.message_id = u.message_id AND d.state = 'd' FOR UPDATE SKIP LOCKED
        ) AS m
    )
    UPDATE simple_mq.messages AS m SET state = CASE WHEN p_queue.fifo THEN 'b' ELSE 'r' END
    FROM due WHERE m.queue_id = ANY(ARRAY[p_queue.store_id]) AND m.message_id = ANY(ARRAY[due.message_id]);
    GET DIAGNOSTICS begun = ROW_COUNT;
    PERFORM simple_mq.sqs_settle(array_agg(s.store_id), array_agg(g.name))
    FROM unnest(v_groups) AS g (name) CROSS JOIN unnest(ARRAY[p_queue.store_id, dlq_store]) AS s (store_id)
    WHERE s.store_id IS NOT NULL HAVING count(*) > 0;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_route IS
    'Internal: makes messages of a queue ready whose delay or visibility timeout is over, or dead letters of them.';

-- A change of DelaySeconds counts for the messages that a FIFO queue has already; others keep their own delay.
CREATE OR REPLACE FUNCTION simple_mq.sqs_due_from(p_queue simple_mq.sqs_queues, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN CASE WHEN p_queue.fifo THEN p_now - make_interval(secs => p_queue.delay) ELSE p_now END;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_due_from IS
    'Internal: delayed messages of a queue whose visible_at is not after this are ready.';

-- Returns:   those of the messages whose groups are locked now, and the groups.
CREATE OR REPLACE FUNCTION simple_mq.sqs_lock_due(
    p_store uuid, p_dlq_store uuid, p_messages uuid[], p_wait bool, OUT messages uuid[], OUT names text[]
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_groups text[];
BEGIN
    SELECT array_agg(m.message_id), array_agg(m.message_group) INTO messages, v_groups
    FROM unnest(p_messages) AS u (message_id)
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[p_store]) AND m.message_id = ANY(ARRAY[u.message_id]);
    IF p_wait THEN
        PERFORM simple_mq.lock_groups(array_agg(s.store_id), array_agg(g.name))
        FROM unnest(v_groups) AS g (name) CROSS JOIN unnest(ARRAY[p_store, p_dlq_store]) AS s (store_id)
        WHERE s.store_id IS NOT NULL;
    END IF;
    names := ARRAY(
        SELECT g.name FROM (SELECT DISTINCT n FROM unnest(v_groups) AS n OFFSET 0) AS g (name)
        WHERE simple_mq.sqs_try_group(p_store, g.name)
            AND CASE WHEN p_dlq_store IS NULL THEN true ELSE simple_mq.sqs_try_group(p_dlq_store, g.name) END
    );
    SELECT array_agg(u.message_id) INTO messages
    FROM unnest(messages, v_groups) AS u (message_id, name) JOIN unnest(names) AS l (name) ON l.name = u.name;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_lock_due IS 'Internal: locks the groups of messages, or those that are free.';
