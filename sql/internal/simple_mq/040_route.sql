-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- The steps of simple_mq.route, which sets how their statements are planned.

-- Ends the deliveries whose timeout is over, at most 1000 messages of a queue: they wait again, or are exhausted.
-- Returns:   the exhausted messages, and the groups that lost their leading message by that.
CREATE OR REPLACE FUNCTION simple_mq.end_deliveries(
    p_queue uuid[], p_now timestamptz,
    OUT exhausted_queue uuid[], OUT exhausted uuid[], OUT freed_queue uuid[], OUT freed_group text[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    d_queue uuid[];               -- taken messages whose timeout is over
    d_message uuid[];
    d_deliveries int[];
    d_last bool[];
BEGIN
    SELECT
        array_agg(m.queue_id), array_agg(m.message_id), array_agg(m.delivery_count), array_agg(m.last),
        -- The groups that lose their leading message.
        array_agg(m.queue_id) FILTER (WHERE m.last AND m.message_group IS NOT NULL),
        array_agg(m.message_group) FILTER (WHERE m.last AND m.message_group IS NOT NULL)
    INTO d_queue, d_message, d_deliveries, d_last, freed_queue, freed_group
    FROM (
        SELECT u.*, q.parent_id IS NULL AND u.delivery_count >= q.max_deliveries AS last
        FROM simple_mq.queues AS q
        CROSS JOIN LATERAL (
            SELECT t.queue_id, t.message_id, t.delivery_count, t.message_group FROM simple_mq.messages AS t
            WHERE t.queue_id = q.queue_id AND t.state = 't' AND t.visible_at <= p_now
            ORDER BY t.visible_at LIMIT 1000
        ) AS u
        WHERE q.queue_id = ANY(p_queue)
    ) AS m;
    PERFORM simple_mq.lock_groups(freed_queue, freed_group);

    WITH due AS (
        SELECT m.queue_id, m.message_id, u.last
        FROM unnest(d_queue, d_message, d_deliveries, d_last) AS u (queue_id, message_id, deliveries, last)
        CROSS JOIN LATERAL (
            SELECT t.queue_id, t.message_id FROM simple_mq.messages AS t
            WHERE t.queue_id = u.queue_id AND t.message_id = u.message_id
                AND CASE t.state WHEN 't' THEN t.visible_at <= p_now AND t.delivery_count = u.deliveries END
            FOR UPDATE SKIP LOCKED
        ) AS m
    ), judged AS (
        UPDATE simple_mq.messages AS m SET state = CASE WHEN due.last THEN 'x' ELSE 'r' END
        FROM due WHERE m.queue_id = ANY(ARRAY[due.queue_id]) AND m.message_id = ANY(ARRAY[due.message_id])
        RETURNING m.queue_id, m.message_id, due.last
    )
    SELECT array_agg(j.queue_id), array_agg(j.message_id) INTO exhausted_queue, exhausted FROM judged AS j WHERE j.last;
END $$;
COMMENT ON FUNCTION simple_mq.end_deliveries IS
    'Internal: makes messages with expired visibility timeouts ready again, or exhausted after their last delivery.';

-- Makes the dead-letter queues that queues with exhausted messages do not have yet, and locks the counts of all of
-- them.
CREATE OR REPLACE FUNCTION simple_mq.open_dlqs(p_queue uuid[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_queue record;
BEGIN
    -- Queue rows before counts, and of those all shards 0 before any other, in the order of their ids.
    FOR v_queue IN
        UPDATE simple_mq.queues AS q SET dlq_id = simple_mq.dlq_id(q.queue_id)
        WHERE q.queue_id = ANY(p_queue) AND q.dlq_id IS NULL
            AND EXISTS (SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = q.queue_id AND m.state = 'x')
        RETURNING q.*
    LOOP
        INSERT INTO simple_mq.queues (
            queue_id, queue_name, queue_size, visibility_timeout, max_deliveries, max_message_bytes, parent_id, created_at
        )
        VALUES (
            v_queue.dlq_id, v_queue.queue_name || '-dlq', v_queue.queue_size, v_queue.visibility_timeout,
            v_queue.max_deliveries, v_queue.max_message_bytes, v_queue.queue_id, p_now
        )
        ON CONFLICT DO NOTHING;
        PERFORM simple_mq.open_counts(v_queue.dlq_id);
    END LOOP;
    PERFORM 1 FROM simple_mq.counts AS c
    WHERE c.shard = 0 AND c.queue_id IN (
        SELECT q.dlq_id FROM simple_mq.queues AS q
        WHERE q.queue_id = ANY(p_queue)
            AND EXISTS (SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = q.queue_id AND m.state = 'x')
    )
    ORDER BY c.queue_id FOR UPDATE;
END $$;
COMMENT ON FUNCTION simple_mq.open_dlqs IS
    'Internal: creates missing dead-letter queues of queues with exhausted messages, and locks their counts.';

-- Moves exhausted messages of a queue, oldest first, as many as its dead-letter queue has room for. Returns their ids.
CREATE OR REPLACE FUNCTION simple_mq.move_exhausted(
    p_queue uuid, p_dlq uuid, p_dlq_size int, p_now timestamptz
) RETURNS uuid[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_room bigint;
    v_moved uuid[];
BEGIN
    v_room := p_dlq_size - simple_mq.message_count(p_dlq);
    WITH chosen AS (
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_queue AND m.state = 'x'
        ORDER BY m.message_id LIMIT greatest(least(v_room, 1000), 0)
        FOR UPDATE SKIP LOCKED
    ), moved AS (
        UPDATE simple_mq.messages AS m SET queue_id = p_dlq, state = 'r', visible_at = p_now
        FROM chosen WHERE m.queue_id = p_queue AND m.message_id = chosen.message_id
        RETURNING m.message_id
    )
    SELECT coalesce(array_agg(m.message_id), '{}') INTO v_moved FROM moved AS m;
    UPDATE simple_mq.counts AS c SET messages = c.messages + cardinality(v_moved)
    WHERE c.queue_id = p_dlq AND c.shard = 0;
    RETURN v_moved;
END $$;
COMMENT ON FUNCTION simple_mq.move_exhausted IS 'Internal: moves exhausted messages of a queue to its dead-letter queue.';

-- Expires the visibility timeouts of some queues: taken messages whose timeout is over wait again. Those with no
-- delivery left go to the dead-letter queue, which is made for the first of them: oldest first, as many as it has room
-- for. The others stay and are tried again at every poll. At most 1000 messages of a queue in one call.
-- Returns:   per queue that had expired messages: the dead-letter queue, how many went there, and how many messages
--            were exhausted now and did not fit.
-- Locks:     groups, messages with SKIP LOCKED, queues, counts (shard 0 of the dead-letter queues, then own shards).
CREATE OR REPLACE FUNCTION simple_mq.route(p_queue uuid[])
RETURNS TABLE (queue_id uuid, dlq_id uuid, dead int, stuck int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_due uuid[];
    v_queue record;
    v_exhausted_queue uuid[];
    v_exhausted uuid[];
    v_freed_queue uuid[];
    v_freed_group text[];
    v_moved uuid[];
    v_removed uuid[] := '{}';
BEGIN
    SELECT array_agg(DISTINCT q.id ORDER BY q.id) INTO v_due FROM unnest(p_queue) AS q (id)
    WHERE EXISTS (
        SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = q.id AND m.state = 't' AND m.visible_at <= v_now
    ) OR EXISTS (SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = q.id AND m.state = 'x');
    IF v_due IS NULL THEN
        RETURN;
    END IF;

    SELECT * INTO v_exhausted_queue, v_exhausted, v_freed_queue, v_freed_group
    FROM simple_mq.end_deliveries(v_due, v_now);
    PERFORM simple_mq.open_dlqs(v_due, v_now);
    FOR v_queue IN
        SELECT q.queue_id, q.dlq_id, d.queue_size AS dlq_size, e.messages AS exhausted
        FROM simple_mq.queues AS q JOIN simple_mq.queues AS d ON d.queue_id = q.dlq_id
        LEFT JOIN (
            SELECT u.queue_id, array_agg(u.message_id) AS messages
            FROM unnest(v_exhausted_queue, v_exhausted) AS u (queue_id, message_id) GROUP BY u.queue_id
        ) AS e ON e.queue_id = q.queue_id
        WHERE q.queue_id = ANY(v_due)
            AND EXISTS (SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = q.queue_id AND m.state = 'x')
        ORDER BY q.queue_id
    LOOP
        v_moved := simple_mq.move_exhausted(v_queue.queue_id, v_queue.dlq_id, v_queue.dlq_size, v_now);
        v_removed := v_removed || array_fill(v_queue.queue_id, ARRAY[cardinality(v_moved)]);
        queue_id := v_queue.queue_id;
        dlq_id := v_queue.dlq_id;
        dead := cardinality(v_moved);
        SELECT count(*) INTO stuck
        FROM unnest(v_queue.exhausted) AS e (message_id) LEFT JOIN unnest(v_moved) AS m (message_id) ON m.message_id = e.message_id
        WHERE m.message_id IS NULL;
        RETURN NEXT;
    END LOOP;
    PERFORM simple_mq.removed(v_removed);
    PERFORM simple_mq.promote(v_freed_queue, v_freed_group);
END $$;
COMMENT ON FUNCTION simple_mq.route IS
    'Internal: makes messages with expired visibility timeouts ready again, and moves exhausted ones to the '
    'dead-letter queues.';
