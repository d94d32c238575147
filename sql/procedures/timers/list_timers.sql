-- Purpose:   the timers of a queue, by key; with p_key only that one.
-- Arguments: p_after  null, or the key after which the page begins
-- Returns:   one row per timer. An unknown queue has none.
CREATE OR REPLACE FUNCTION queen.list_timers_v1(p_queue text, p_key text, p_after text, p_limit int)
RETURNS TABLE (key text, partition text, transaction_id text, deliver_at timestamptz, message text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT t.key, t.partition, t.transaction_id, t.deliver_at, t.message
    FROM queen.timers AS t
    WHERE t.queue_id = (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue)
        AND t.key >= coalesce(p_key, p_after, '') AND (p_key IS NULL OR t.key = p_key) AND t.key IS DISTINCT FROM p_after
    ORDER BY t.key LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.list_timers_v1 IS 'The timers of a queue, by key.';
