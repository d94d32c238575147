-- Purpose:   stores the messages of many requests, each request whole or not at all.
-- Arguments: p_flush names the call, so that it can be sent again when its answer was lost;
--            by request: p_queue;
--            by message, in the order of the requests: p_request (its number, from 1), p_group (null: none), p_data,
--            p_traceparent (null: none; null for the whole array: no message has one).
-- Returns:   one row per request: its number; stored, full, too_large or unknown; the queue's size; the ids of its
--            messages.
-- Locks:     groups, then counts (shard 0) by queue_id until the commit: enqueues of a queue go one after another.
-- Writes:    messages, counts, flushes.
CREATE OR REPLACE FUNCTION simple_mq.enqueue_v1(
    p_flush uuid, p_queue uuid[], p_request int[], p_group text[], p_data text[], p_traceparent text[]
) RETURNS TABLE (request int, outcome text, queue_size int, message_ids uuid[])
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_grouped bool := EXISTS (SELECT 1 FROM unnest(p_group) AS g (name) WHERE g.name IS NOT NULL);
    v_request record;
    v_outcomes text[] := array_fill('unknown'::text, ARRAY[cardinality(p_queue)]);
    v_queue uuid;
    v_room bigint;
BEGIN
    IF v_grouped THEN
        PERFORM simple_mq.lock_groups(array_agg(p_queue[m.request]), array_agg(m.name))
        FROM unnest(p_request, p_group) AS m (request, name) WHERE m.name IS NOT NULL;
    END IF;
    PERFORM 1 FROM simple_mq.counts AS c
    WHERE c.queue_id = ANY(p_queue) AND c.shard = 0 ORDER BY c.queue_id FOR UPDATE;
    -- After the locks: within a queue created_at rises in the order of commits, on which the order of ids and
    -- simple_mq.heads rely, also while the clock is behind because it has stepped back.
    SELECT greatest(queen.clock(), max(c.last_at) + interval '1 microsecond') INTO v_now
    FROM simple_mq.counts AS c WHERE c.queue_id = ANY(p_queue) AND c.shard = 0;

    -- After the locks, so that the room is what all earlier enqueues have left.
    FOR v_request IN
        SELECT r.n::int AS n, q.queue_id, q.queue_size, q.max_message_bytes, m.messages, m.bytes
        FROM unnest(p_queue) WITH ORDINALITY AS r (queue_id, n)
        JOIN (
            SELECT u.request, count(*) AS messages, max(octet_length(u.data)) AS bytes
            FROM unnest(p_request, p_data) AS u (request, data) GROUP BY u.request
        ) AS m ON m.request = r.n
        JOIN simple_mq.queues AS q ON q.queue_id = r.queue_id
        ORDER BY r.queue_id, r.n
    LOOP
        IF v_queue IS DISTINCT FROM v_request.queue_id THEN
            v_queue := v_request.queue_id;
            v_room := v_request.queue_size - simple_mq.message_count(v_queue);
        END IF;
        IF v_request.bytes > v_request.max_message_bytes THEN
            v_outcomes[v_request.n] := 'too_large';
        ELSIF v_request.messages > v_room THEN
            v_outcomes[v_request.n] := 'full';
        ELSE
            v_outcomes[v_request.n] := 'stored';
            v_room := v_room - v_request.messages;
        END IF;
    END LOOP;

    -- The row of the flush decides which sending of a call counts: a second one finds it, or waits for it.
    IF 'stored' = ANY(v_outcomes) THEN
        INSERT INTO simple_mq.flushes (flush_id, created_at, outcomes) VALUES (p_flush, v_now, v_outcomes)
        ON CONFLICT DO NOTHING;
    END IF;
    IF NOT FOUND OR 'stored' <> ALL(v_outcomes) THEN
        SELECT coalesce(max(f.created_at), v_now), coalesce(max(f.outcomes), v_outcomes) INTO v_now, v_outcomes
        FROM simple_mq.flushes AS f WHERE f.flush_id = p_flush;
    ELSE
        PERFORM simple_mq.store(v_now, p_flush, p_queue, v_outcomes, p_request, p_group, p_data, p_traceparent, v_grouped);
    END IF;

    RETURN QUERY
    SELECT r.n::int, v_outcomes[r.n], q.queue_size, i.ids
    FROM unnest(p_queue) WITH ORDINALITY AS r (queue_id, n)
    LEFT JOIN simple_mq.queues AS q ON q.queue_id = r.queue_id
    LEFT JOIN (
        SELECT u.request, array_agg(simple_mq.message_id(v_now, p_flush, u.place::int) ORDER BY u.place) AS ids
        FROM unnest(p_request) WITH ORDINALITY AS u (request, place) GROUP BY u.request
    ) AS i ON i.request = r.n AND v_outcomes[r.n] = 'stored'
    ORDER BY r.n;
END $$;
COMMENT ON FUNCTION simple_mq.enqueue_v1 IS 'Stores the messages of many requests, each whole or not at all.';
