-- Purpose:   serves many polls: first expires visibility timeouts in their queues (simple_mq.route), then takes the
--            oldest messages.
-- Arguments: by poll, in the order in which they are served: p_queue, p_limit (most messages).
-- Returns:   one row per message: the poll, from 1, and the message; and one row per queue, with poll null: known; its
--            dead-letter queue, how many messages went there and how many did not fit (see simple_mq.route); and when
--            its polls got less than they asked for, ready_in: the seconds until a message becomes visible by itself
--            (null: not before an enqueue; 0 or less: one is, but it is locked).
-- Locks:     those of simple_mq.route, then messages with SKIP LOCKED: a poll never waits for a message.
-- Writes:    messages, now and then heads; and by routing queues, counts.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION simple_mq.dequeue_v1(p_queue uuid[], p_limit int[])
RETURNS TABLE (
    poll int, queue_id uuid, known bool, dlq_id uuid, dead int, stuck int, ready_in float8,
    message_id uuid, data text, delivery_count int, visible_at timestamptz, created_at timestamptz, message_group text,
    traceparent text
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_place record;
    v_taken bigint;
    v_routed_queue uuid[];
    v_routed_dead int[];
    v_routed_stuck int[];
BEGIN
    SELECT array_agg(r.queue_id), array_agg(r.dead), array_agg(r.stuck) INTO v_routed_queue, v_routed_dead, v_routed_stuck
    FROM simple_mq.route(p_queue) AS r;
    FOR v_place IN
        SELECT
            u.queue_id, q.queue_id IS NOT NULL AS known, q.visibility_timeout, q.dlq_id, u.polls, u.places, u.wanted,
            CASE WHEN h.waiting_from > '1970-01-01' THEN simple_mq.uuid_at(h.waiting_from, '0000000000000000')
                ELSE '00000000-0000-0000-0000-000000000000' END AS head,
            h.checked_at < v_now - interval '100 milliseconds' AS head_is_old,
            coalesce(r.dead, 0) AS dead, coalesce(r.stuck, 0) AS stuck
        FROM (
            -- The first message that each poll gets, counted from 1, and the polls in the same order.
            SELECT p.queue_id, array_agg(p.n::int ORDER BY p.n) AS polls, array_agg(p.upto - p.most + 1 ORDER BY p.n) AS places,
                sum(p.most) AS wanted
            FROM (
                SELECT l.queue_id, l.most, l.n, sum(l.most) OVER (PARTITION BY l.queue_id ORDER BY l.n) AS upto
                FROM unnest(p_queue, p_limit) WITH ORDINALITY AS l (queue_id, most, n)
            ) AS p
            GROUP BY p.queue_id
        ) AS u
        LEFT JOIN unnest(v_routed_queue, v_routed_dead, v_routed_stuck) AS r (queue_id, dead, stuck) ON r.queue_id = u.queue_id
        LEFT JOIN simple_mq.queues AS q ON q.queue_id = u.queue_id
        LEFT JOIN simple_mq.heads AS h ON h.queue_id = u.queue_id
        ORDER BY u.queue_id
    LOOP
        v_taken := 0;
        IF v_place.known THEN
            RETURN QUERY
            WITH ready AS (
                SELECT m.message_id FROM simple_mq.messages AS m
                WHERE m.queue_id = v_place.queue_id AND m.state = 'r'
                ORDER BY m.message_id LIMIT v_place.wanted
                FOR UPDATE SKIP LOCKED
            ), waiting AS (
                SELECT m.message_id FROM simple_mq.messages AS m
                WHERE m.queue_id = v_place.queue_id AND m.state = 'w' AND m.message_id >= v_place.head
                ORDER BY m.message_id LIMIT v_place.wanted
                FOR UPDATE SKIP LOCKED
            ), oldest AS (
                SELECT l.message_id FROM (SELECT * FROM ready UNION ALL SELECT * FROM waiting) AS l
                ORDER BY l.message_id LIMIT v_place.wanted
            ), taken AS (
                UPDATE simple_mq.messages AS m
                SET
                    state = 't', delivery_count = m.delivery_count + 1,
                    visible_at = v_now + make_interval(secs => v_place.visibility_timeout)
                FROM oldest WHERE m.queue_id = v_place.queue_id AND m.message_id = ANY(ARRAY[oldest.message_id])
                RETURNING m.*
            )
            SELECT
                v_place.polls[width_bucket(t.n, v_place.places)], v_place.queue_id, true, NULL::uuid, NULL::int, NULL::int,
                NULL::float8, t.message_id, t.data, t.delivery_count, t.visible_at, t.created_at, t.message_group,
                t.traceparent
            FROM (SELECT taken.*, row_number() OVER (ORDER BY taken.message_id) AS n FROM taken) AS t
            ORDER BY t.n;
            GET DIAGNOSTICS v_taken = ROW_COUNT;
            IF v_taken > 0 AND v_place.head_is_old THEN
                PERFORM simple_mq.move_head(v_place.queue_id, v_place.head, v_now);
            END IF;
        END IF;
        poll := NULL;
        queue_id := v_place.queue_id;
        known := v_place.known;
        dlq_id := v_place.dlq_id;
        dead := v_place.dead;
        stuck := v_place.stuck;
        ready_in := NULL;
        IF v_taken < v_place.wanted THEN
            ready_in := simple_mq.next_visible_in(v_place.queue_id, v_place.head, v_now);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION simple_mq.dequeue_v1 IS 'Takes the oldest visible messages of queues for many polls.';

-- Purpose:   undoes deliveries whose consumer had disconnected before the answer.
-- Arguments: by message: p_queue, p_message, p_delivery (its delivery count then: a later delivery is left alone).
-- Locks:     messages.  Writes: messages.
CREATE OR REPLACE FUNCTION simple_mq.give_back_v1(p_queue uuid[], p_message uuid[], p_delivery int[]) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    PERFORM 1 FROM simple_mq.messages AS m
    JOIN unnest(p_queue, p_message) AS u (queue_id, message_id) ON m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    ORDER BY u.queue_id, u.message_id FOR UPDATE OF m;
    UPDATE simple_mq.messages AS m SET state = 'r', delivery_count = m.delivery_count - 1, visible_at = queen.clock()
    FROM unnest(p_queue, p_message, p_delivery) AS u (queue_id, message_id, delivery)
    WHERE m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        AND CASE m.state WHEN 't' THEN m.delivery_count = u.delivery END;
END $$;
COMMENT ON FUNCTION simple_mq.give_back_v1 IS 'Returns deliveries whose consumer had disconnected.';
