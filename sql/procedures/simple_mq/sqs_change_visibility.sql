-- Purpose:   sets how long messages stay hidden, counted from now. The next receive finds what is visible by that.
-- Arguments: by message: p_queue, p_message, p_delivery (as for sqs_delete_v1), p_seconds.
-- Returns:   one row per message: its number, from 1; changed, not_in_flight (FIFO only: the visibility timeout is over),
--            missing, stale or unknown (the queue).
-- Locks:     messages by (queue_id, message_id), own shards of counts.  Writes: messages, counts.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION simple_mq.sqs_change_visibility_v1(
    p_queue uuid[], p_message uuid[], p_delivery int[], p_seconds int[]
) RETURNS TABLE (place int, outcome text)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_store uuid[];
    v_fifo bool[];
    v_judged text[];
    v_hidden uuid[];
BEGIN
    SELECT array_agg(q.store_id ORDER BY u.place), array_agg(q.fifo ORDER BY u.place) INTO v_store, v_fifo
    FROM unnest(p_queue) WITH ORDINALITY AS u (queue_id, place)
    LEFT JOIN simple_mq.sqs_queues AS q ON q.queue_id = u.queue_id;
    PERFORM 1 FROM (SELECT DISTINCT a.store_id, a.message_id FROM unnest(v_store, p_message) AS a (store_id, message_id)) AS u
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    ORDER BY u.store_id, u.message_id FOR UPDATE OF m;
    v_now := queen.clock();
    SELECT
        array_agg(
            CASE
                WHEN u.store_id IS NULL THEN 'unknown'
                WHEN m.message_id IS NULL THEN 'missing'
                WHEN m.delivery_count <> u.delivery THEN 'stale'
                WHEN u.fifo AND (m.state <> 't' OR m.visible_at <= v_now) THEN 'not_in_flight'
                ELSE 'changed'
            END ORDER BY u.place),
        array_agg(DISTINCT m.message_id) FILTER (WHERE m.state = 'r' AND m.delivery_count = u.delivery AND NOT u.fifo)
    INTO v_judged, v_hidden
    FROM unnest(v_store, v_fifo, p_message, p_delivery) WITH ORDINALITY AS u (store_id, fifo, message_id, delivery, place)
    LEFT JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id]);
    WITH changed AS (
        UPDATE simple_mq.messages AS m SET state = 't', visible_at = v_now + make_interval(secs => u.seconds)
        FROM (
            SELECT DISTINCT ON (r.store_id, r.message_id) r.store_id, r.message_id, r.seconds
            FROM unnest(v_store, p_message, p_seconds, v_judged) WITH ORDINALITY
                AS r (store_id, message_id, seconds, judged, place)
            WHERE r.judged = 'changed'
            ORDER BY r.store_id, r.message_id, r.place DESC
        ) AS u
        WHERE m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        RETURNING m.queue_id, m.message_id
    ), hidden AS (
        SELECT c.queue_id FROM changed AS c JOIN unnest(v_hidden) AS h (message_id) ON h.message_id = c.message_id
    )
    SELECT coalesce(array_agg(h.queue_id), '{}') INTO v_hidden FROM hidden AS h;
    PERFORM simple_mq.sqs_count(
        v_hidden, array_fill(0::bigint, ARRAY[cardinality(v_hidden)]), array_fill(1::bigint, ARRAY[cardinality(v_hidden)]),
        array_fill(0::bigint, ARRAY[cardinality(v_hidden)]));
    RETURN QUERY SELECT j.place::int, j.judged FROM unnest(v_judged) WITH ORDINALITY AS j (judged, place) ORDER BY j.place;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_change_visibility_v1 IS 'Sets the visibility timeout of messages of SQS.';
