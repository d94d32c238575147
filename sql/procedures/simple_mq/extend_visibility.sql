-- Purpose:   sets how long messages in flight stay hidden, counted from now.
-- Arguments: by request: p_queue, p_message, p_seconds.
-- Returns:   one row per request: its number, from 1; extended, waiting (not in flight), missing or unknown; until
--            when.
-- Locks:     messages by (queue_id, message_id).  Writes: messages.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION simple_mq.extend_visibility_v1(p_queue uuid[], p_message uuid[], p_seconds int[])
RETURNS TABLE (request int, outcome text, visible_at timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    PERFORM 1 FROM (SELECT DISTINCT a.queue_id, a.message_id FROM unnest(p_queue, p_message) AS a (queue_id, message_id)) AS u
    JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    ORDER BY u.queue_id, u.message_id FOR UPDATE OF m;
    RETURN QUERY
    WITH extended AS (
        UPDATE simple_mq.messages AS m SET visible_at = v_now + make_interval(secs => u.seconds)
        FROM (
            SELECT DISTINCT ON (r.queue_id, r.message_id) r.queue_id, r.message_id, r.seconds
            FROM unnest(p_queue, p_message, p_seconds) WITH ORDINALITY AS r (queue_id, message_id, seconds, n)
            JOIN simple_mq.queues AS q ON q.queue_id = r.queue_id
            ORDER BY r.queue_id, r.message_id, r.n DESC
        ) AS u
        WHERE m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
            AND CASE m.state WHEN 't' THEN m.visible_at > v_now END
        RETURNING m.queue_id, m.message_id, m.visible_at
    )
    SELECT
        u.n::int,
        CASE
            WHEN e.message_id IS NOT NULL THEN 'extended'
            WHEN q.queue_id IS NULL THEN 'unknown'
            WHEN m.message_id IS NOT NULL THEN 'waiting'
            ELSE 'missing'
        END,
        e.visible_at
    FROM unnest(p_queue, p_message) WITH ORDINALITY AS u (queue_id, message_id, n)
    LEFT JOIN simple_mq.queues AS q ON q.queue_id = u.queue_id
    LEFT JOIN simple_mq.messages AS m ON m.queue_id = ANY(ARRAY[u.queue_id]) AND m.message_id = ANY(ARRAY[u.message_id])
    LEFT JOIN extended AS e ON e.queue_id = u.queue_id AND e.message_id = u.message_id;
END $$;
COMMENT ON FUNCTION simple_mq.extend_visibility_v1 IS 'Sets the visibility timeout of messages in flight.';
