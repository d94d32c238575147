-- Purpose:   serves many receives of queues of SQS: first what time has done to their queues (simple_mq.sqs_route), then
--            takes the oldest messages; of a FIFO queue in order within each group, of groups of which nothing is in
--            flight.
-- Arguments: by receive, in the order in which they are served: p_queue, p_limit (most messages), p_visibility (seconds,
--            null: the queue's), p_attempt (only of FIFO queues: repeats what the same attempt returned; null: none),
--            p_in_flight_max (no more messages of the queue are in flight).
-- Returns:   one row per message: the receive, from 1, and the message; and one row per queue, with receive null: known;
--            is_full: it had messages in flight up to its maximum; its dead-letter queue and how many messages went
--            there; and when its receives got less than they asked for, ready_in: the seconds until a message becomes
--            visible by itself (null: not before a send or delete; 0 or less: one is, but it is locked).
-- Locks:     those of attempts, of simple_mq.sqs_route, groups (waits only for the first), messages, counts.
-- Writes:    messages, counts, attempts, now and then heads.
CREATE OR REPLACE FUNCTION simple_mq.sqs_receive_v1(
    p_queue uuid[], p_limit int[], p_visibility int[], p_attempt text[], p_in_flight_max int[]
) RETURNS TABLE (
    receive int, queue_id uuid, known bool, is_full bool, dlq_id uuid, dead int, ready_in float8,
    message_id uuid, data text, attributes bytea, key_id text, delivery_count int, created_at timestamptz,
    first_received_at timestamptz, message_group text, deduplication_id text, source_id uuid, fifo bool, sent_id uuid
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_polls record;
    v_queue simple_mq.sqs_queues;
    v_routed record;
    v_served record;
    v_taken bigint;
    v_store uuid[] := '{}';       -- what to add to counts
    v_messages bigint[] := '{}';
    v_in_flight bigint[] := '{}';
    v_delayed bigint[] := '{}';
    v_free bool := true;          -- no lock of a group or a message is held: deletes take those of groups first
BEGIN
    -- In a class of their own: only receives wait for them, so whoever holds one may still wait for a group.
    PERFORM pg_advisory_xact_lock(7564658, a.slot) FROM (
        SELECT DISTINCT simple_mq.group_slot(u.queue_id, u.name) AS slot
        FROM unnest(p_queue, p_attempt) AS u (queue_id, name) WHERE u.name IS NOT NULL ORDER BY slot
    ) AS a;
    FOR v_polls IN
        SELECT
            u.queue_id, array_agg(u.n::int ORDER BY u.n) AS receives, array_agg(u.most ORDER BY u.n) AS limits,
            array_agg(coalesce(u.visibility, q.visibility_timeout) ORDER BY u.n) AS visibility,
            array_agg(u.attempt ORDER BY u.n) AS attempts, max(u.in_flight_max) AS in_flight_max
        FROM unnest(p_queue, p_limit, p_visibility, p_attempt, p_in_flight_max) WITH ORDINALITY
            AS u (queue_id, most, visibility, attempt, in_flight_max, n)
        LEFT JOIN simple_mq.sqs_queues AS q ON q.queue_id = u.queue_id
        GROUP BY u.queue_id ORDER BY u.queue_id
    LOOP
        SELECT q.* INTO v_queue FROM simple_mq.sqs_queues AS q WHERE q.queue_id = v_polls.queue_id;
        receive := NULL;
        queue_id := v_polls.queue_id;
        known := FOUND;
        is_full := false;
        dead := 0;
        dlq_id := NULL;
        ready_in := NULL;
        IF known THEN
            SELECT * INTO v_routed FROM simple_mq.sqs_route(v_queue, v_now, false);
            dead := v_routed.dead;
            dlq_id := v_routed.dlq_id;
            v_taken := 0;
            FOR v_served IN
                SELECT * FROM simple_mq.sqs_serve(
                    v_queue, v_polls.limits, v_polls.visibility, v_polls.attempts, v_polls.in_flight_max + v_routed.ended, v_now,
                    v_free AND v_routed.ended + v_routed.begun = 0)
            LOOP
                IF v_served.place IS NULL THEN
                    is_full := v_served.is_full;
                    ready_in := v_served.ready_in;
                    CONTINUE;
                END IF;
                v_taken := v_taken + CASE WHEN v_served.repeated THEN 0 ELSE 1 END;
                RETURN QUERY SELECT
                    v_polls.receives[v_served.place], v_queue.queue_id, true, NULL::bool, NULL::uuid, NULL::int,
                    NULL::float8, m.message_id, m.data, m.attributes, m.key_id, m.delivery_count, m.created_at,
                    m.first_received_at, m.message_group, m.deduplication_id, m.source_id, v_queue.fifo, m.sent_id
                FROM (SELECT (v_served.message).*) AS m;
            END LOOP;
            v_free := v_free AND NOT v_queue.fifo AND v_taken + v_routed.ended + v_routed.begun = 0;
            v_store := v_store || v_queue.store_id || v_routed.dlq_store;
            v_messages := v_messages || -v_routed.dead::bigint || v_routed.dead::bigint;
            v_in_flight := v_in_flight || v_taken - v_routed.ended || 0::bigint;
            v_delayed := v_delayed || -v_routed.begun::bigint || 0::bigint;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM simple_mq.sqs_count(v_store, v_messages, v_in_flight, v_delayed);
END $$;
COMMENT ON FUNCTION simple_mq.sqs_receive_v1 IS 'Takes the oldest visible messages of queues of SQS for many receives.';

-- Purpose:   undoes receives whose consumer had disconnected before the answer.
-- Arguments: by message of one queue: p_message, p_delivery (its delivery count then: a later receive is left alone).
-- Locks:     groups, messages, counts.  Writes: messages, counts.
CREATE OR REPLACE FUNCTION simple_mq.sqs_give_back_v1(p_queue uuid, p_message uuid[], p_delivery int[]) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue simple_mq.sqs_queues;
    v_groups text[];
    v_rows bigint;
BEGIN
    SELECT q.* INTO v_queue FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_queue;
    IF v_queue.fifo THEN
        SELECT array_agg(DISTINCT m.message_group) INTO v_groups FROM unnest(p_message) AS u (message_id)
        JOIN simple_mq.messages AS m
            ON m.queue_id = ANY(ARRAY[v_queue.store_id]) AND m.message_id = ANY(ARRAY[u.message_id]);
        PERFORM simple_mq.lock_groups(array_agg(v_queue.store_id), array_agg(g.name)) FROM unnest(v_groups) AS g (name);
    END IF;
    PERFORM 1 FROM unnest(p_message) AS u (message_id)
    JOIN simple_mq.messages AS m
        ON m.queue_id = ANY(ARRAY[v_queue.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    ORDER BY u.message_id FOR UPDATE OF m;
    UPDATE simple_mq.messages AS m
    SET
        state = CASE WHEN v_queue.fifo THEN 'b' ELSE 'r' END, delivery_count = m.delivery_count - 1,
        first_received_at = CASE WHEN m.delivery_count > 1 THEN m.first_received_at END
    FROM unnest(p_message, p_delivery) AS u (message_id, delivery)
    WHERE m.queue_id = ANY(ARRAY[v_queue.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        AND CASE m.state WHEN 't' THEN m.delivery_count = u.delivery END;
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    PERFORM simple_mq.sqs_settle(array_agg(v_queue.store_id), array_agg(g.name)) FROM unnest(v_groups) AS g (name);
    PERFORM simple_mq.sqs_count(ARRAY[v_queue.store_id], ARRAY[0], ARRAY[-v_rows], ARRAY[0])
    WHERE v_rows > 0;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_give_back_v1 IS 'Returns messages of SQS whose consumer had disconnected.';
