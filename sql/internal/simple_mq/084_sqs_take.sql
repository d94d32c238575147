-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- The steps of simple_mq.sqs_receive_v1, which sets how their statements are planned. p_places says with which message,
-- from 1, each poll begins; p_visibility is by poll.
CREATE OR REPLACE FUNCTION simple_mq.sqs_take(
    p_store uuid, p_head uuid, p_wanted bigint, p_places bigint[], p_visibility int[], p_now timestamptz
) RETURNS TABLE (place int, message simple_mq.messages)
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    WITH ready AS (
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_store AND m.state = 'r'
        ORDER BY m.message_id LIMIT p_wanted
        FOR UPDATE SKIP LOCKED
    ), waiting AS (
        SELECT m.message_id FROM simple_mq.messages AS m
        WHERE m.queue_id = p_store AND m.state = 'w' AND m.message_id >= p_head
        ORDER BY m.message_id LIMIT p_wanted
        FOR UPDATE SKIP LOCKED
    ), oldest AS (
        SELECT l.message_id, width_bucket(row_number() OVER (ORDER BY l.message_id), p_places) AS place
        FROM (SELECT * FROM ready UNION ALL SELECT * FROM waiting) AS l
        ORDER BY l.message_id LIMIT p_wanted
    ), taken AS (
        UPDATE simple_mq.messages AS m
        SET
            state = 't', delivery_count = m.delivery_count + 1, first_received_at = coalesce(m.first_received_at, p_now),
            visible_at = p_now + make_interval(secs => p_visibility[oldest.place])
        FROM oldest WHERE m.queue_id = p_store AND m.message_id = ANY(ARRAY[oldest.message_id])
        RETURNING oldest.place, m
    )
    SELECT t.place, t.m FROM taken AS t ORDER BY (t.m).message_id;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_take IS 'Internal: takes the oldest visible messages of a standard queue.';

-- The groups of a FIFO queue from which this transaction may take: of the oldest ready messages those whose locks are
-- free, or if there is none and p_wait, the oldest, waiting. A transaction that holds locks of groups must not wait.
CREATE OR REPLACE FUNCTION simple_mq.sqs_lock_ready(p_store uuid, p_wanted bigint, p_wait bool) RETURNS text[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_groups text[] := ARRAY(
        SELECT c.message_group FROM (
            SELECT m.message_group FROM simple_mq.messages AS m
            WHERE m.queue_id = p_store AND m.state = 'r' ORDER BY m.message_id LIMIT p_wanted + 100
        ) AS c
        WHERE simple_mq.sqs_try_group(p_store, c.message_group) LIMIT p_wanted
    );
BEGIN
    IF p_wait AND cardinality(v_groups) = 0 THEN
        v_groups := ARRAY(
            SELECT m.message_group FROM simple_mq.messages AS m
            WHERE m.queue_id = p_store AND m.state = 'r' ORDER BY m.message_id LIMIT p_wanted
        );
        PERFORM simple_mq.lock_groups(array_fill(p_store, ARRAY[cardinality(v_groups)]), v_groups);
    END IF;
    RETURN v_groups;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_lock_ready IS 'Internal: locks groups of a FIFO queue that have ready messages.';

-- For one poll: the oldest ready messages of the groups, each followed by the next ones of its group.
CREATE OR REPLACE FUNCTION simple_mq.sqs_take_in_order(
    p_store uuid, p_groups text[], p_limit int, p_visibility int, p_now timestamptz
) RETURNS SETOF simple_mq.messages
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN QUERY
    WITH leaders AS (
        SELECT l.message_id, l.message_group
        FROM unnest(p_groups) AS g (name)
        CROSS JOIN LATERAL (
            SELECT m.message_id, m.message_group FROM simple_mq.messages AS m
            WHERE m.queue_id = p_store AND m.message_group = g.name AND m.state IN ('w', 'r', 't') AND m.state = 'r'
            OFFSET 0
        ) AS l
        ORDER BY l.message_id LIMIT p_limit
    ), chosen AS (
        SELECT n.message_id, row_number() OVER (ORDER BY l.message_id, n.message_id) AS place
        FROM leaders AS l
        CROSS JOIN LATERAL (
            SELECT l.message_id
            UNION ALL
            (
                SELECT b.message_id FROM simple_mq.messages AS b
                WHERE b.queue_id = p_store AND b.message_group = l.message_group AND b.state = 'b'
                ORDER BY b.message_id LIMIT p_limit - 1
            )
        ) AS n
    ), taken AS (
        UPDATE simple_mq.messages AS m
        SET
            state = 't', delivery_count = m.delivery_count + 1, first_received_at = coalesce(m.first_received_at, p_now),
            visible_at = p_now + make_interval(secs => p_visibility)
        FROM (SELECT c.message_id, c.place FROM chosen AS c ORDER BY c.place LIMIT p_limit) AS o
        WHERE m.queue_id = p_store AND m.message_id = ANY(ARRAY[o.message_id])
        RETURNING o.place, m
    )
    SELECT (t.m).* FROM taken AS t ORDER BY t.place;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_take_in_order IS 'Internal: takes messages of locked groups of a FIFO queue.';

-- The messages that a receive with this attempt id returned, hidden anew; none if it is more than five minutes ago, or
-- if one of them was deleted, changed or is visible again.
CREATE OR REPLACE FUNCTION simple_mq.sqs_repeat(
    p_queue simple_mq.sqs_queues, p_attempt text, p_visibility int, p_now timestamptz
) RETURNS SETOF simple_mq.messages
LANGUAGE plpgsql
AS $$
DECLARE
    v_attempt simple_mq.sqs_attempts;
    v_there bigint;
BEGIN
    SELECT a.* INTO v_attempt FROM simple_mq.sqs_attempts AS a
    WHERE a.store_id = p_queue.store_id AND a.attempt_id = p_attempt
        AND a.received_at > p_now - interval '5 minutes' AND a.visible_at > p_now;
    SELECT count(*) INTO v_there FROM (
        SELECT 1 FROM unnest(v_attempt.message_ids, v_attempt.delivery_counts) AS u (message_id, delivery_count)
        JOIN simple_mq.messages AS m
            ON m.queue_id = ANY(ARRAY[p_queue.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        WHERE m.state = 't' AND m.delivery_count = u.delivery_count AND m.visible_at = v_attempt.visible_at
        ORDER BY u.message_id FOR UPDATE OF m
    ) AS l;
    IF v_there = 0 OR v_there <> cardinality(v_attempt.message_ids) THEN
        RETURN;
    END IF;
    UPDATE simple_mq.sqs_attempts AS a SET visible_at = p_now + make_interval(secs => p_visibility)
    WHERE a.store_id = p_queue.store_id AND a.attempt_id = p_attempt;
    RETURN QUERY
    WITH hidden AS (
        UPDATE simple_mq.messages AS m SET visible_at = p_now + make_interval(secs => p_visibility)
        FROM unnest(v_attempt.message_ids) WITH ORDINALITY AS u (message_id, place)
        WHERE m.queue_id = p_queue.store_id AND m.message_id = ANY(ARRAY[u.message_id])
        RETURNING u.place, m
    )
    SELECT (h.m).* FROM hidden AS h ORDER BY h.place;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_repeat IS 'Internal: what a receive returned, again.';

-- All polls of a FIFO queue, one after another: with an attempt id what it returned before, or else the next messages.
CREATE OR REPLACE FUNCTION simple_mq.sqs_serve_in_order(
    p_queue simple_mq.sqs_queues, p_groups text[], p_limits int[], p_visibility int[], p_attempts text[], p_room bigint,
    p_now timestamptz
) RETURNS TABLE (place int, message simple_mq.messages, repeated bool)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_room bigint := p_room;
    v_poll int;
    v_messages simple_mq.messages[];
BEGIN
    FOR v_poll IN 1..cardinality(p_limits) LOOP
        IF p_attempts[v_poll] IS NOT NULL THEN
            RETURN QUERY SELECT v_poll, m, true
                FROM simple_mq.sqs_repeat(p_queue, p_attempts[v_poll], p_visibility[v_poll], p_now) AS m;
            CONTINUE WHEN FOUND;
        END IF;
        CONTINUE WHEN v_room <= 0 OR cardinality(p_groups) = 0;
        v_messages := ARRAY(
            SELECT m FROM simple_mq.sqs_take_in_order(
                p_queue.store_id, p_groups, least(p_limits[v_poll], v_room)::int, p_visibility[v_poll], p_now) AS m
        );
        v_room := v_room - cardinality(v_messages);
        RETURN QUERY SELECT v_poll, m, false FROM unnest(v_messages) AS m;
        IF cardinality(v_messages) > 0 AND p_attempts[v_poll] IS NOT NULL THEN
            INSERT INTO simple_mq.sqs_attempts (
                store_id, attempt_id, received_at, visible_at, message_ids, delivery_counts
            )
            SELECT
                p_queue.store_id, p_attempts[v_poll], p_now, p_now + make_interval(secs => p_visibility[v_poll]),
                array_agg(m.message_id), array_agg(m.delivery_count)
            FROM unnest(v_messages) AS m
            ON CONFLICT (store_id, attempt_id) DO UPDATE
                SET received_at = excluded.received_at, visible_at = excluded.visible_at,
                    message_ids = excluded.message_ids, delivery_counts = excluded.delivery_counts;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_serve_in_order IS 'Internal: takes messages of a FIFO queue for polls.';

-- The seconds until a message of a queue becomes visible by itself; null: not before a send or a delete; 0 or less: one
-- is visible.
CREATE OR REPLACE FUNCTION simple_mq.sqs_next_visible_in(
    p_queue simple_mq.sqs_queues, p_head uuid, p_now timestamptz
) RETURNS float8
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN least(
        simple_mq.next_visible_in(p_queue.store_id, p_head, p_now),
        extract(EPOCH FROM (
            SELECT min(m.visible_at) FROM simple_mq.messages AS m
            WHERE m.queue_id = p_queue.store_id AND m.state = 'd'
        ) - simple_mq.sqs_due_from(p_queue, p_now))::float8
    );
END $$;
COMMENT ON FUNCTION simple_mq.sqs_next_visible_in IS 'Internal: the seconds until a message becomes visible.';

-- Takes messages of one queue for its polls. p_wait: the transaction holds no lock of a group yet.
CREATE OR REPLACE FUNCTION simple_mq.sqs_serve(
    p_queue simple_mq.sqs_queues, p_limits int[], p_visibility int[], p_attempts text[], p_in_flight_max bigint,
    p_now timestamptz, p_wait bool
) RETURNS TABLE (place int, message simple_mq.messages, repeated bool, ready_in float8, is_full bool)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_wanted bigint := (SELECT sum(l) FROM unnest(p_limits) AS l);
    v_room bigint := p_in_flight_max - simple_mq.sqs_in_flight(p_queue.store_id);
    v_head uuid;
    v_head_is_old bool;
    v_taken bigint;
BEGIN
    SELECT
        CASE WHEN h.waiting_from > '1970-01-01' THEN simple_mq.uuid_at(h.waiting_from, '0000000000000000')
            ELSE '00000000-0000-0000-0000-000000000000' END,
        h.checked_at < p_now - interval '100 milliseconds'
    INTO v_head, v_head_is_old
    FROM simple_mq.heads AS h WHERE h.queue_id = p_queue.store_id;
    IF p_queue.fifo THEN
        RETURN QUERY SELECT s.place, s.message, s.repeated, NULL::float8, false
            FROM simple_mq.sqs_serve_in_order(
                p_queue, simple_mq.sqs_lock_ready(p_queue.store_id, least(v_wanted, greatest(v_room, 0)), p_wait),
                p_limits, p_visibility, p_attempts, v_room, p_now) AS s;
    ELSE
        RETURN QUERY SELECT t.place, t.message, false, NULL::float8, false
            FROM simple_mq.sqs_take(
                p_queue.store_id, v_head, greatest(least(v_wanted, v_room), 0),
                ARRAY(SELECT sum(l.most) OVER (ORDER BY l.n) - l.most + 1
                    FROM unnest(p_limits) WITH ORDINALITY AS l (most, n) ORDER BY l.n)::bigint[],
                p_visibility, p_now) AS t;
    END IF;
    GET DIAGNOSTICS v_taken = ROW_COUNT;
    IF v_taken > 0 AND v_head_is_old AND NOT p_queue.fifo THEN
        PERFORM simple_mq.move_head(p_queue.store_id, v_head, p_now);
    END IF;
    IF v_taken < v_wanted THEN
        is_full := v_room <= 0;
        ready_in := simple_mq.sqs_next_visible_in(p_queue, v_head, p_now);
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_serve IS 'Internal: takes messages of one queue of SQS for its polls.';
