-- Purpose:   finds the queues of a namespace or task for a pop, in its order.
-- Arguments: p_namespace, p_task: null matches any.
-- Returns:   one row per queue, higher priority first.
CREATE OR REPLACE FUNCTION queen.find_queues_v1(p_namespace text, p_task text)
RETURNS TABLE (queue text, queue_id bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.name, q.id FROM queen.queues AS q
    WHERE (p_namespace IS NULL OR q.namespace = p_namespace) AND (p_task IS NULL OR q.task = p_task)
    ORDER BY q.priority DESC, q.id;
END;
COMMENT ON FUNCTION queen.find_queues_v1 IS 'The queues of a namespace or task, higher priority first.';
