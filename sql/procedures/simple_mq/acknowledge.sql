-- Purpose:   removes messages.
-- Arguments: by ack: p_queue, p_message.
-- Returns:   one row per ack: its number, from 1; deleted, missing or unknown (the queue); freed: another message of
--            its group is visible now.
-- Locks:     groups, messages by (queue_id, message_id), own shards of counts.  Writes: messages, counts.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION simple_mq.acknowledge_v1(p_queue uuid[], p_message uuid[])
RETURNS TABLE (ack int, outcome text, freed bool)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_group_queue uuid[];
    v_group text[];
    v_deleted_queue uuid[];
    v_deleted uuid[];
    v_freed uuid[] := '{}';
BEGIN
    SELECT array_agg(m.queue_id), array_agg(m.message_group) INTO v_group_queue, v_group
    FROM unnest(p_queue, p_message) AS u (queue_id, message_id)
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    WHERE m.message_group IS NOT NULL;
    IF v_group IS NOT NULL THEN
        PERFORM simple_mq.lock_groups(v_group_queue, v_group);
    END IF;
    PERFORM 1 FROM (SELECT DISTINCT a.queue_id, a.message_id FROM unnest(p_queue, p_message) AS a (queue_id, message_id)) AS u
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    ORDER BY u.queue_id, u.message_id FOR UPDATE OF m;
    WITH deleted AS (
        DELETE FROM simple_mq.messages AS m
        USING unnest(p_queue, p_message) AS u (queue_id, message_id)
        JOIN simple_mq.queues AS q ON q.queue_id = u.queue_id
        WHERE m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
        RETURNING m.queue_id, m.message_id
    )
    SELECT coalesce(array_agg(d.queue_id), '{}'), coalesce(array_agg(d.message_id), '{}') INTO v_deleted_queue, v_deleted
    FROM deleted AS d;
    PERFORM simple_mq.removed(v_deleted_queue);
    IF v_group IS NOT NULL THEN
        v_freed := simple_mq.promote(v_group_queue, v_group);
    END IF;
    RETURN QUERY
    SELECT
        u.n::int,
        CASE
            WHEN d.message_id IS NOT NULL AND row_number() OVER (PARTITION BY u.queue_id, u.message_id ORDER BY u.n) = 1
                THEN 'deleted'
            WHEN q.queue_id IS NOT NULL THEN 'missing'
            ELSE 'unknown'
        END,
        f.queue_id IS NOT NULL
    FROM unnest(p_queue, p_message) WITH ORDINALITY AS u (queue_id, message_id, n)
    LEFT JOIN simple_mq.queues AS q ON q.queue_id = u.queue_id
    LEFT JOIN unnest(v_deleted_queue, v_deleted) AS d (queue_id, message_id)
        ON d.queue_id = u.queue_id AND d.message_id = u.message_id
    LEFT JOIN (SELECT DISTINCT n AS queue_id FROM unnest(v_freed) AS n) AS f ON f.queue_id = u.queue_id;
END $$;
COMMENT ON FUNCTION simple_mq.acknowledge_v1 IS 'Removes messages, each by queue and id.';
