-- The steps of simple_mq.sqs_send_v1, which sets how their statements are planned.

-- Which messages are to be stored: in a FIFO queue those whose deduplication id is new, and of several in one call the
-- first. The caller holds shard 0 of the counts, so sends of a queue go one after another.
-- Returns:   the ids of the messages with new deduplication ids.
CREATE OR REPLACE FUNCTION simple_mq.sqs_deduplicate(
    p_now timestamptz, p_store uuid[], p_fifo bool[], p_scope text[], p_deduplication text[], p_message uuid[]
) RETURNS uuid[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_new uuid[];
BEGIN
    WITH fresh AS (
        INSERT INTO simple_mq.sqs_deduplication AS d (
            store_id, deduplication_id, message_group, message_id, sent_at
        )
        SELECT DISTINCT ON (u.store_id, u.deduplication_id, u.scope)
            u.store_id, u.deduplication_id, u.scope, u.message_id, p_now
        FROM unnest(p_store, p_fifo, p_scope, p_deduplication, p_message) WITH ORDINALITY
            AS u (store_id, fifo, scope, deduplication_id, message_id, place)
        WHERE u.store_id IS NOT NULL AND u.fifo AND u.deduplication_id IS NOT NULL
        ORDER BY u.store_id, u.deduplication_id, u.scope, u.place
        ON CONFLICT (store_id, deduplication_id, message_group) DO UPDATE
            SET message_id = excluded.message_id, sent_at = excluded.sent_at
            WHERE d.sent_at <= excluded.sent_at - interval '5 minutes'
        RETURNING d.message_id
    )
    SELECT array_agg(f.message_id) INTO v_new FROM fresh AS f;
    RETURN v_new;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_deduplicate IS 'Internal: remembers deduplication ids that are new.';

-- Writes messages, each to its store (null: it is not stored), with what shard 0 of the counts has to say of them. Those
-- of FIFO queues are delayed as long as others are that came before, so that they stay in order.
CREATE OR REPLACE FUNCTION simple_mq.sqs_store(
    p_now timestamptz, p_store uuid[], p_fifo bool[], p_delay int[], p_message uuid[], p_data text[],
    p_attributes bytea[], p_key_id text[], p_group text[], p_deduplication text[]
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_late uuid[] := ARRAY(
        SELECT s.store_id FROM (SELECT DISTINCT u FROM unnest(p_store) AS u) AS s (store_id)
        WHERE EXISTS (SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = s.store_id AND m.state = 'd')
    );
BEGIN
    WITH stored AS (
        INSERT INTO simple_mq.messages (
            queue_id, message_id, state, visible_at, created_at, message_group, data, attributes, key_id,
            deduplication_id
        )
        SELECT
            u.store_id, u.message_id,
            CASE
                WHEN u.delay > 0 OR (u.fifo AND u.store_id = ANY(v_late)) THEN 'd'
                WHEN u.fifo THEN 'b'
                ELSE 'w'
            END,
            CASE WHEN u.fifo THEN p_now ELSE p_now + make_interval(secs => u.delay) END, p_now, u.name, u.data,
            u.attributes, u.key_id, u.deduplication_id
        FROM unnest(
            p_store, p_fifo, p_delay, p_message, p_data, p_attributes, p_key_id, p_group, p_deduplication
        ) AS u (store_id, fifo, delay, message_id, data, attributes, key_id, name, deduplication_id)
        WHERE u.store_id IS NOT NULL
        RETURNING queue_id, state
    )
    UPDATE simple_mq.counts AS c
    SET messages = c.messages + u.messages, delayed = c.delayed + u.delayed, last_at = p_now
    FROM (
        SELECT s.queue_id, count(*) AS messages, count(*) FILTER (WHERE s.state = 'd') AS delayed
        FROM stored AS s GROUP BY s.queue_id
    ) AS u
    WHERE c.queue_id = u.queue_id AND c.shard = 0;
    PERFORM simple_mq.promote(array_agg(u.store_id), array_agg(u.name))
    FROM unnest(p_store, p_fifo, p_group) AS u (store_id, fifo, name)
    WHERE u.store_id IS NOT NULL AND u.fifo HAVING count(*) > 0;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_store IS 'Internal: writes messages of SQS.';

-- Locks the shards 0 of the counts of stores, in order.
-- Returns:   the time for new messages, behind that of all others there; null: one of the stores is gone.
CREATE OR REPLACE FUNCTION simple_mq.sqs_lock_counts(p_store uuid[]) RETURNS timestamptz
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_last timestamptz[];
BEGIN
    SELECT array_agg(l.last_at) INTO v_last FROM (
        SELECT c.last_at FROM simple_mq.counts AS c
        WHERE c.queue_id = ANY(p_store) AND c.shard = 0 ORDER BY c.queue_id FOR UPDATE
    ) AS l;
    IF coalesce(cardinality(v_last), 0) < (SELECT count(DISTINCT s) FROM unnest(p_store) AS s) THEN
        RETURN NULL;
    END IF;
    RETURN greatest(queen.clock(), (SELECT max(l) + interval '1 microsecond' FROM unnest(v_last) AS l));
END $$;
COMMENT ON FUNCTION simple_mq.sqs_lock_counts IS 'Internal: locks the counts of stores for new messages.';
