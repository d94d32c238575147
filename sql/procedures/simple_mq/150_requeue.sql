-- Purpose:   gives a message a second chance: delivery count 0, visible now. From a dead-letter queue it goes back to the
--            parent; otherwise it goes to p_queue, from wherever it is.
-- Returns:   requeued, missing, unknown (the destination) or full; the destination, its size and its message count.
-- Locks:     groups, messages by (queue_id, message_id), counts (shard 0 of the destination, then an own shard).
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
    v_source uuid;
    v_group text;
BEGIN
    SELECT m.queue_id, m.message_group INTO v_source, v_group FROM simple_mq.messages AS m
    JOIN simple_mq.queues AS q ON q.queue_id = m.queue_id
    WHERE m.queue_id = p_queue AND m.message_id = p_message;
    IF NOT FOUND THEN
        SELECT m.queue_id, m.message_group INTO v_source, v_group
        FROM simple_mq.queues AS q
        JOIN simple_mq.messages AS m ON m.queue_id = q.queue_id AND m.message_id = p_message
        LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    destination := p_queue;
    IF v_source = p_queue THEN
        SELECT q.queue_id INTO destination FROM simple_mq.queues AS q WHERE q.dlq_id = p_queue;
        destination := coalesce(destination, p_queue);
    END IF;
    IF v_group IS NOT NULL THEN
        PERFORM simple_mq.lock_groups(ARRAY[v_source, destination], ARRAY[v_group, v_group]);
    END IF;
    PERFORM 1 FROM simple_mq.messages AS m
    WHERE (m.queue_id = v_source AND m.message_id = p_message)
        OR (m.queue_id = destination AND m.message_group = v_group AND m.state IN ('w', 'r', 't'))
    ORDER BY m.queue_id, m.message_id FOR UPDATE;
    PERFORM 1 FROM simple_mq.counts AS c WHERE c.queue_id = destination AND c.shard = 0 FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    SELECT q.queue_size, simple_mq.message_count(destination) INTO queue_size, messages
    FROM simple_mq.queues AS q WHERE q.queue_id = destination;
    IF v_source <> destination AND messages >= queue_size THEN
        outcome := 'full';
        RETURN;
    END IF;
    outcome := simple_mq.move_back(v_source, destination, p_message, v_group);
END $$;
COMMENT ON FUNCTION simple_mq.requeue_v1 IS 'Gives a message a second chance: delivery count 0, visible now.';

CREATE OR REPLACE FUNCTION simple_mq.move_back(
    p_source uuid, p_destination uuid, p_message uuid, p_group text
) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_ordered bool := p_group IS NOT NULL AND EXISTS (
        SELECT 1 FROM simple_mq.queues AS q WHERE q.queue_id = p_destination AND q.parent_id IS NULL
    );
BEGIN
    UPDATE simple_mq.messages AS m
    SET
        queue_id = p_destination, delivery_count = 0, visible_at = queen.clock(),
        state = CASE WHEN v_ordered THEN 'b' ELSE 'r' END
    WHERE m.queue_id = p_source AND m.message_id = p_message;
    IF NOT FOUND THEN
        RETURN 'missing';
    END IF;
    IF v_ordered THEN
        -- Whichever is the oldest leads the group, unless one is in somebody's hands, or through with its deliveries.
        UPDATE simple_mq.messages AS m SET state = 'b'
        FROM simple_mq.queues AS q
        WHERE m.queue_id = p_destination AND m.message_group = p_group AND q.queue_id = m.queue_id
            AND (
                m.state IN ('w', 'r')
                OR (m.state = 't' AND m.visible_at <= queen.clock() AND m.delivery_count < q.max_deliveries)
            );
    END IF;
    IF p_group IS NOT NULL THEN
        PERFORM simple_mq.promote(ARRAY[p_source, p_destination], ARRAY[p_group, p_group]);
    END IF;
    IF p_source <> p_destination THEN
        UPDATE simple_mq.counts AS c SET messages = c.messages + 1 WHERE c.queue_id = p_destination AND c.shard = 0;
        PERFORM simple_mq.removed(ARRAY[p_source]);
    END IF;
    RETURN 'requeued';
END $$;
COMMENT ON FUNCTION simple_mq.move_back IS 'Internal: moves one message that is locked, with the groups concerned and shard 0 of the destination.';

-- Purpose:   requeues what is visible in a dead-letter queue, oldest first, at most p_step of them and as many as there is
--            room for.
-- Returns:   requeued, unknown (the queue), or plain (it is no dead-letter queue, or its parent is gone); the parent; how many.
-- Locks:     as simple_mq.requeue_v1.
CREATE OR REPLACE FUNCTION simple_mq.requeue_all_v1(
    p_queue uuid, p_step int, OUT outcome text, OUT destination uuid, OUT requeued int
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_message record;
    v_ids uuid[];
    v_one text;
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
    v_ids := ARRAY(
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_queue AND (m.state IN ('w', 'r') OR (m.state = 't' AND m.visible_at <= queen.clock()))
        ORDER BY m.message_id LIMIT p_step
    );
    -- All locks in the order of every call, before the first message is moved.
    PERFORM simple_mq.lock_groups(array_agg(l.queue_id), array_agg(l.message_group)) FROM (
        SELECT q.queue_id, m.message_group
        FROM simple_mq.messages AS m CROSS JOIN unnest(ARRAY[p_queue, destination]) AS q (queue_id)
        WHERE m.queue_id = p_queue AND m.message_id = ANY(v_ids) AND m.message_group IS NOT NULL
    ) AS l HAVING count(*) > 0;
    PERFORM 1 FROM simple_mq.messages AS m
    WHERE m.queue_id = p_queue AND m.message_id = ANY(v_ids) ORDER BY m.message_id FOR UPDATE;
    FOR v_message IN SELECT u.id FROM unnest(v_ids) AS u (id) LOOP
        SELECT r.outcome INTO v_one FROM simple_mq.requeue_v1(p_queue, v_message.id) AS r;
        EXIT WHEN v_one IN ('full', 'unknown');
        requeued := requeued + (v_one = 'requeued')::int;
    END LOOP;
END $$;
COMMENT ON FUNCTION simple_mq.requeue_all_v1 IS 'Requeues the messages of a dead-letter queue, a bounded number at a time.';
