CREATE OR REPLACE FUNCTION simple_mq.store(
    p_time timestamptz, p_flush uuid, p_queue uuid[], p_outcomes text[], p_request int[], p_group text[], p_data text[],
    p_traceparent text[], p_grouped bool
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    -- A queue without its counts has just been deleted, and takes nothing.
    UPDATE simple_mq.counts AS c SET messages = c.messages + u.number, last_at = p_time
    FROM (
        SELECT p_queue[m.request] AS queue_id, count(*) AS number
        FROM unnest(p_request) AS m (request) WHERE p_outcomes[m.request] = 'stored' GROUP BY 1
    ) AS u
    WHERE c.queue_id = u.queue_id AND c.shard = 0;
    INSERT INTO simple_mq.messages (
        queue_id, message_id, state, visible_at, created_at, message_group, data, traceparent
    )
    SELECT
        q.queue_id, simple_mq.message_id(p_time, p_flush, m.place::int),
        CASE WHEN m.name IS NULL OR q.parent_id IS NOT NULL THEN 'w' ELSE 'b' END, p_time, p_time, m.name, m.data,
        m.traceparent
    FROM unnest(p_request, p_group, p_data, p_traceparent)
        WITH ORDINALITY AS m (request, name, data, traceparent, place)
    JOIN simple_mq.queues AS q ON q.queue_id = p_queue[m.request]
    WHERE p_outcomes[m.request] = 'stored';
    IF p_grouped THEN
        PERFORM simple_mq.promote(array_agg(p_queue[m.request]), array_agg(m.name))
        FROM unnest(p_request, p_group) AS m (request, name)
        WHERE m.name IS NOT NULL AND p_outcomes[m.request] = 'stored';
    END IF;
END $$;
COMMENT ON FUNCTION simple_mq.store IS 'Internal: writes the messages of the requests that are to be stored.';
