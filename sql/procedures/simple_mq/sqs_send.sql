-- Purpose:   stores the messages of many sends. A message of a FIFO queue whose deduplication id was sent in the last
--            five minutes (to the queue, or if the queue says so to the group) is answered with the first one's id.
-- Arguments: p_flush names the call, so that it can be sent again when its answer was lost;
--            by send: p_queue;
--            by message, in the order of the sends: p_request (its number, from 1), p_data, p_attributes (null: none),
--            p_key_id (null: not encrypted), p_delay (seconds; null: the queue's, as always in a FIFO queue), p_group,
--            p_deduplication (null: none).
-- Returns:   one row per message: its place, from 1; its id (null: there is no such queue); whether the queue is FIFO; the
--            id that the sender of the first one was told, if that is another.
-- Locks:     those of simple_mq.sqs_lock_stores.
-- Writes:    messages, counts, sqs_deduplication, flushes.
CREATE OR REPLACE FUNCTION simple_mq.sqs_send_v1(
    p_flush uuid, p_queue uuid[], p_request int[], p_data text[], p_attributes bytea[], p_key_id text[], p_delay int[],
    p_group text[], p_deduplication text[]
) RETURNS TABLE (place int, message_id uuid, fifo bool, sent_id uuid)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_store uuid[];      -- by message
    v_fifo bool[];
    v_delay int[];
    v_scope text[];
    v_message uuid[];
    v_first bool;
BEGIN
    SELECT l.place_at, l.stores, l.fifo, l.delays, l.scopes INTO v_now, v_store, v_fifo, v_delay, v_scope
    FROM simple_mq.sqs_lock_stores(
        ARRAY(SELECT p_queue[u.request] FROM unnest(p_request) WITH ORDINALITY AS u (request, place) ORDER BY u.place),
        p_delay, p_group) AS l;

    -- The row of the flush decides which sending of a call counts: a second one finds it, or waits for it.
    INSERT INTO simple_mq.flushes AS f (flush_id, created_at, outcomes)
    SELECT p_flush, v_now, array_agg(CASE WHEN u.store_id IS NULL THEN 'unknown' ELSE 'stored' END ORDER BY u.place)
    FROM unnest(v_store) WITH ORDINALITY AS u (store_id, place)
    ON CONFLICT DO NOTHING;
    v_first := FOUND;
    IF NOT v_first THEN
        SELECT f.created_at, array_agg(CASE WHEN o.outcome = 'stored' THEN v_store[o.place] END ORDER BY o.place)
        INTO v_now, v_store
        FROM simple_mq.flushes AS f CROSS JOIN unnest(f.outcomes) WITH ORDINALITY AS o (outcome, place)
        WHERE f.flush_id = p_flush GROUP BY f.created_at;
    END IF;
    v_message := ARRAY(
        SELECT simple_mq.message_id(v_now, p_flush, n) FROM generate_series(1, cardinality(p_request)) AS n ORDER BY n
    );
    IF v_first THEN
        PERFORM simple_mq.sqs_store(
            v_now, v_now, simple_mq.sqs_deduplicate(v_now, v_store, v_fifo, v_scope, p_deduplication, v_message, NULL),
            v_store, v_fifo, v_delay, v_message, NULL, p_data, p_attributes, p_key_id, p_group, p_deduplication);
    END IF;

    RETURN QUERY
    SELECT u.place::int, CASE WHEN u.store_id IS NOT NULL THEN coalesce(d.message_id, u.message_id) END, u.fifo,
        d.sent_id
    FROM unnest(v_store, v_fifo, v_scope, p_deduplication, v_message) WITH ORDINALITY
        AS u (store_id, fifo, scope, deduplication_id, message_id, place)
    LEFT JOIN simple_mq.sqs_deduplication AS d
        ON u.fifo AND d.store_id = ANY(ARRAY[u.store_id]) AND d.deduplication_id = u.deduplication_id
        AND d.message_group = u.scope
    ORDER BY u.place;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_send_v1 IS 'Stores the messages of many sends, without duplicates in FIFO queues.';
