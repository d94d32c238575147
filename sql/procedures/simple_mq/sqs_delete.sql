-- Purpose:   removes messages of queues of SQS.
-- Arguments: by message: p_queue, p_message, p_delivery (its delivery count at the receive from which the caller has it).
-- Returns:   one row per message: its number, from 1; deleted, missing, stale (it was received again since, or given
--            back), expired (FIFO only: the visibility timeout is over) or unknown (the queue); freed: another message
--            of its group is visible now.
-- Locks:     groups, messages by (queue_id, message_id), own shards of counts.  Writes: messages, counts.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION simple_mq.sqs_delete_v1(p_queue uuid[], p_message uuid[], p_delivery int[])
RETURNS TABLE (place int, outcome text, freed bool)
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
    v_group_store uuid[];
    v_group text[];
    v_judged text[];     -- by message: null if it is not there
    v_deleted uuid[] := '{}';
    v_in_flight bigint[] := '{}';
    v_freed uuid[] := '{}';
BEGIN
    SELECT array_agg(q.store_id ORDER BY u.place), array_agg(q.fifo ORDER BY u.place) INTO v_store, v_fifo
    FROM unnest(p_queue) WITH ORDINALITY AS u (queue_id, place)
    LEFT JOIN simple_mq.sqs_queues AS q ON q.queue_id = u.queue_id;
    SELECT array_agg(m.queue_id), array_agg(m.message_group) INTO v_group_store, v_group
    FROM unnest(v_store, v_fifo, p_message) AS u (store_id, fifo, message_id)
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    WHERE u.fifo;
    IF v_group IS NOT NULL THEN
        PERFORM simple_mq.lock_groups(v_group_store, v_group);
    END IF;
    PERFORM 1 FROM (SELECT DISTINCT a.store_id, a.message_id FROM unnest(v_store, p_message) AS a (store_id, message_id)) AS u
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    ORDER BY u.store_id, u.message_id FOR UPDATE OF m;
    v_now := queen.clock();
    SELECT array_agg(
        CASE
            WHEN m.message_id IS NULL THEN 'missing'
            WHEN m.delivery_count <> u.delivery THEN 'stale'
            WHEN u.fifo AND (m.state <> 't' OR m.visible_at <= v_now) THEN 'expired'
            ELSE 'deleted'
        END ORDER BY u.place)
    INTO v_judged
    FROM unnest(v_store, v_fifo, p_message, p_delivery) WITH ORDINALITY AS u (store_id, fifo, message_id, delivery, place)
    LEFT JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id]);
    WITH deleted AS (
        DELETE FROM simple_mq.messages AS m USING unnest(v_store, p_message, v_judged) AS u (store_id, message_id, judged)
        WHERE u.judged = 'deleted' AND m.queue_id = ANY(ARRAY[u.store_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        RETURNING m.queue_id, m.state
    )
    SELECT
        coalesce(array_agg(d.queue_id), '{}'), coalesce(array_agg(CASE WHEN d.state = 't' THEN -1 ELSE 0 END::bigint), '{}')
    INTO v_deleted, v_in_flight FROM deleted AS d;
    IF v_group IS NOT NULL THEN
        v_freed := simple_mq.sqs_settle(v_group_store, v_group);
    END IF;
    PERFORM simple_mq.sqs_count(
        v_deleted, array_fill(-1::bigint, ARRAY[cardinality(v_deleted)]), v_in_flight,
        array_fill(0::bigint, ARRAY[cardinality(v_deleted)]));
    RETURN QUERY
    SELECT
        u.place::int,
        CASE
            WHEN u.store_id IS NULL THEN 'unknown'
            WHEN u.judged = 'deleted'
                AND row_number() OVER (PARTITION BY u.store_id, u.message_id, u.judged ORDER BY u.place) > 1 THEN 'missing'
            ELSE u.judged
        END,
        u.fifo AND u.store_id = ANY(v_freed)
    FROM unnest(v_store, v_fifo, p_message, v_judged) WITH ORDINALITY AS u (store_id, fifo, message_id, judged, place)
    ORDER BY u.place;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_delete_v1 IS 'Removes messages of SQS, each by queue, id and receive.';
