-- Purpose:   requeues a message: delivery count 0, visible now. From a dead-letter queue it goes back to the parent;
--            otherwise it goes to p_queue, from any queue.
-- Returns:   requeued, repeated (p_queue is a dead-letter queue, and the message is in its parent: the same request has
--            moved it, and nothing changes), missing, unknown (the destination) or full; the destination, its size and
--            its message count.
-- Locks:     those of simple_mq.move_back.
-- Writes:    messages, counts.
CREATE OR REPLACE FUNCTION simple_mq.requeue_v1(
    p_queue uuid, p_message uuid, OUT outcome text, OUT destination uuid, OUT queue_size int, OUT messages bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_parent CONSTANT uuid := (SELECT q.queue_id FROM simple_mq.queues AS q WHERE q.dlq_id = p_queue);
    v_source uuid;
    v_moved record;
BEGIN
    SELECT m.queue_id INTO v_source FROM simple_mq.messages AS m
    JOIN simple_mq.queues AS q ON q.queue_id = m.queue_id
    WHERE m.queue_id = p_queue AND m.message_id = p_message;
    IF NOT FOUND THEN
        SELECT m.queue_id INTO v_source
        FROM simple_mq.queues AS q
        JOIN simple_mq.messages AS m ON m.queue_id = q.queue_id AND m.message_id = p_message
        LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    destination := CASE WHEN v_source IN (p_queue, v_parent) THEN coalesce(v_parent, p_queue) ELSE p_queue END;
    IF v_source = v_parent THEN
        outcome := 'repeated';
        RETURN;
    END IF;
    SELECT * INTO v_moved FROM simple_mq.move_back(v_source, destination, ARRAY[p_message]);
    queue_size := v_moved.queue_size;
    messages := v_moved.messages;
    outcome := CASE
        WHEN queue_size IS NULL THEN 'unknown'
        WHEN v_moved.there = 0 AND EXISTS (
            SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = destination AND m.message_id = p_message
        ) THEN 'repeated'
        WHEN v_moved.there = 0 THEN 'missing'
        WHEN v_moved.moved = 0 THEN 'full'
        ELSE 'requeued'
    END;
END $$;
COMMENT ON FUNCTION simple_mq.requeue_v1 IS 'Requeues a message: delivery count 0, visible now.';

-- Purpose:   requeues what is visible in a dead-letter queue, oldest first, at most p_step of them and as many as there
--            is room for.
-- Returns:   requeued, unknown (the queue), or plain (it is no dead-letter queue, or its parent is gone); the parent;
--            how many.
-- Locks:     those of simple_mq.move_back.
CREATE OR REPLACE FUNCTION simple_mq.requeue_all_v1(
    p_queue uuid, p_step int, OUT outcome text, OUT destination uuid, OUT requeued int
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    requeued := 0;
    IF NOT EXISTS (SELECT 1 FROM simple_mq.queues AS q WHERE q.queue_id = p_queue) THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    SELECT q.queue_id INTO destination FROM simple_mq.queues AS q WHERE q.dlq_id = p_queue;
    IF NOT FOUND THEN
        outcome := 'plain';
        RETURN;
    END IF;
    outcome := 'requeued';
    SELECT r.moved INTO requeued
    FROM simple_mq.move_back(p_queue, destination, ARRAY(
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_queue AND (m.state IN ('w', 'r') OR (m.state = 't' AND m.visible_at <= queen.clock()))
        ORDER BY m.message_id LIMIT p_step)) AS r;
END $$;
COMMENT ON FUNCTION simple_mq.requeue_all_v1 IS 'Requeues the messages of a dead-letter queue, a bounded number at a time.';
