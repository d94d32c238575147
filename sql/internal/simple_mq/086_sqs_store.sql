-- The steps of simple_mq.sqs_send_v1, which sets how their statements are planned.

-- The stores of messages, with their locks: groups, then shard 0 of the counts, so sends of a queue go one after another.
-- A queue that is purged meanwhile has another store, which is read then.
-- Returns:   the time for new messages (simple_mq.sqs_lock_counts); by message its store (null: there is no such queue),
--            whether the queue is FIFO, the delay, and the group within which its deduplication id counts.
CREATE OR REPLACE FUNCTION simple_mq.sqs_lock_stores(
    p_queue uuid[], p_delay int[], p_group text[],
    OUT place_at timestamptz, OUT stores uuid[], OUT fifo bool[], OUT delays int[], OUT scopes text[]
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    LOOP
        SELECT
            array_agg(q.store_id ORDER BY m.place), array_agg(q.fifo ORDER BY m.place),
            array_agg(CASE WHEN q.fifo THEN q.delay ELSE coalesce(m.delay, q.delay) END ORDER BY m.place),
            array_agg(CASE WHEN q.deduplication_per_group THEN m.name ELSE '' END ORDER BY m.place)
        INTO stores, fifo, delays, scopes
        FROM unnest(p_queue, p_delay, p_group) WITH ORDINALITY AS m (queue_id, delay, name, place)
        LEFT JOIN simple_mq.sqs_queues AS q ON q.queue_id = m.queue_id;
        PERFORM simple_mq.lock_groups(array_agg(u.store_id), array_agg(u.name))
        FROM unnest(stores, fifo, p_group) AS u (store_id, fifo, name) WHERE u.fifo HAVING count(*) > 0;
        place_at := simple_mq.sqs_lock_counts(stores);
        EXIT WHEN place_at IS NOT NULL;
    END LOOP;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_lock_stores IS 'Internal: locks the stores to which messages are sent.';

-- Which messages are to be stored: in a FIFO queue those whose deduplication id is new, and of several in one call the
-- first. The caller holds shard 0 of the counts.
-- Arguments: p_sent: when they were sent; it may be before others that are stored already.
-- Returns:   the ids of the messages with new deduplication ids.
CREATE OR REPLACE FUNCTION simple_mq.sqs_deduplicate(
    p_sent timestamptz, p_store uuid[], p_fifo bool[], p_scope text[], p_deduplication text[], p_message uuid[],
    p_sent_id uuid[]
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
            store_id, deduplication_id, message_group, message_id, sent_id, sent_at
        )
        SELECT DISTINCT ON (u.store_id, u.deduplication_id, u.scope)
            u.store_id, u.deduplication_id, u.scope, u.message_id, u.sent_id, p_sent
        FROM unnest(p_store, p_fifo, p_scope, p_deduplication, p_message, p_sent_id) WITH ORDINALITY
            AS u (store_id, fifo, scope, deduplication_id, message_id, sent_id, place)
        WHERE u.store_id IS NOT NULL AND u.fifo AND u.deduplication_id IS NOT NULL
        ORDER BY u.store_id, u.deduplication_id, u.scope, u.place
        ON CONFLICT (store_id, deduplication_id, message_group) DO UPDATE
            SET message_id = excluded.message_id, sent_id = excluded.sent_id, sent_at = excluded.sent_at
            WHERE d.sent_at <= excluded.sent_at - interval '5 minutes'
                OR d.sent_at >= excluded.sent_at + interval '5 minutes'
        RETURNING d.message_id
    )
    SELECT array_agg(f.message_id) INTO v_new FROM fresh AS f;
    RETURN v_new;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_deduplicate IS 'Internal: remembers deduplication ids that are new.';

-- Writes messages with new deduplication ids (p_new), or without one, each to its store (null: it is not stored), and
-- what shard 0 of the counts has to say of them. Those of FIFO queues are delayed as long as others are that came before,
-- so that they stay in order.
-- Arguments: p_now: the time of their place; p_sent: when they were sent, from which delays count; p_sent_id: null: ids
--            of messages are what senders are told.
CREATE OR REPLACE FUNCTION simple_mq.sqs_store(
    p_now timestamptz, p_sent timestamptz, p_new uuid[], p_store uuid[], p_fifo bool[], p_delay int[], p_message uuid[],
    p_sent_id uuid[], p_data text[], p_attributes bytea[], p_key_id text[], p_group text[], p_deduplication text[]
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_late uuid[];
    v_late_from timestamptz[];
BEGIN
    SELECT array_agg(s.store_id), array_agg(l.visible_at) INTO v_late, v_late_from
    FROM (SELECT DISTINCT u.store_id FROM unnest(p_store, p_fifo) AS u (store_id, fifo) WHERE u.fifo) AS s
    CROSS JOIN LATERAL (
        SELECT m.visible_at FROM simple_mq.messages AS m WHERE m.queue_id = s.store_id AND m.state = 'd'
        ORDER BY m.visible_at DESC LIMIT 1
    ) AS l;
    WITH stored AS (
        INSERT INTO simple_mq.messages (
            queue_id, message_id, sent_id, state, visible_at, created_at, message_group, data, attributes, key_id,
            deduplication_id
        )
        SELECT
            u.store_id, u.message_id, u.sent_id,
            CASE
                WHEN (u.delay > 0 AND p_sent + make_interval(secs => u.delay) > p_now) OR l.visible_at IS NOT NULL
                    THEN 'd'
                WHEN u.fifo THEN 'b'
                ELSE 'w'
            END,
            CASE WHEN u.fifo THEN greatest(p_sent, l.visible_at) ELSE p_sent + make_interval(secs => u.delay) END,
            p_sent, u.name, u.data, u.attributes, u.key_id, u.deduplication_id
        FROM unnest(
            p_store, p_fifo, p_delay, p_message, p_sent_id, p_data, p_attributes, p_key_id, p_group, p_deduplication
        ) AS u (store_id, fifo, delay, message_id, sent_id, data, attributes, key_id, name, deduplication_id)
        LEFT JOIN unnest(p_new) AS n (message_id) ON n.message_id = u.message_id
        LEFT JOIN unnest(v_late, v_late_from) AS l (store_id, visible_at) ON u.fifo AND l.store_id = u.store_id
        WHERE u.store_id IS NOT NULL AND (NOT u.fifo OR u.deduplication_id IS NULL OR n.message_id IS NOT NULL)
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
