-- Purpose:   moves exhausted messages to the dead-letter queues without a poll, in at most p_step queues that have
--            some.
-- Returns:   as simple_mq.route. Called by the server that leads the background services.
-- Locks:     those of simple_mq.route.
CREATE OR REPLACE FUNCTION simple_mq.sweep_v1(p_step int)
RETURNS TABLE (queue_id uuid, dlq_id uuid, dead int, stuck int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT r.* FROM simple_mq.route(ARRAY(
        SELECT q.queue_id FROM simple_mq.queues AS q
        WHERE q.parent_id IS NULL AND (
            EXISTS (
                SELECT 1 FROM simple_mq.messages AS m
                WHERE m.queue_id = q.queue_id AND m.state = 't' AND m.visible_at <= queen.clock()
            )
            OR EXISTS (
                SELECT 1 FROM simple_mq.messages AS m
                WHERE m.queue_id = q.queue_id AND m.state = 'x' AND simple_mq.message_count(q.dlq_id) < q.queue_size
            )
        )
        LIMIT p_step
    )) AS r;
END $$;
COMMENT ON FUNCTION simple_mq.sweep_v1 IS 'Moves exhausted messages to their dead-letter queues, also without a poll.';

-- Purpose:   removes the outcomes of old enqueue calls, which are no longer needed.
CREATE OR REPLACE FUNCTION simple_mq.tidy_v1(p_not_after timestamptz DEFAULT NULL) RETURNS void
LANGUAGE sql
AS $$
    DELETE FROM simple_mq.flushes AS f WHERE f.created_at < (SELECT queen.older_than('10 minutes', p_not_after));
$$;
COMMENT ON FUNCTION simple_mq.tidy_v1 IS 'Removes outcomes of enqueue calls that are too old to be sent again.';
