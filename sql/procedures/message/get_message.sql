-- Purpose:   reads one message, with its queue and its state for each group.
-- Arguments: p_part; p_off and p_hash: its offset by the form of its message id, and its hash (queen.transaction_hash)
-- Returns:   one row, or none: there is no such message. group_* are arrays, one element per group; error and
--            retry_count are those of its newest dead letter.
CREATE OR REPLACE FUNCTION queen.get_message_v1(p_part bigint, p_off bigint, p_hash uuid)
RETURNS TABLE (
    off bigint, queue text, partition text, namespace text, task text, created_at timestamptz, transaction_id text,
    trace_id text, producer_sub text, payload text, status text, lease_ends timestamptz,
    lease_time int, retry_limit int, retry_delay int, priority int, group_name text[], group_done bool[],
    group_lease_ends timestamptz[], group_failed_at timestamptz[], group_error text[], error text, retry_count int,
    ttl int, key_id text, headers text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_off bigint := queen.find_message(p_part, p_off, p_hash);
BEGIN
    RETURN QUERY
    SELECT
        v_off, q.name, p.name, q.namespace, q.task, m.created_at, m.transaction_id, m.trace_id, m.producer_sub,
        m.payload::text, a.status, a.lease_ends, q.lease_time, q.retry_limit, q.retry_delay, q.priority, c.name, c.done, c.lease_ends,
        c.failed_at, c.error, d.error, d.retry_count, q.ttl, m.key_id, m.headers::text
    FROM (
        SELECT l.last_off FROM queen.segments AS l WHERE l.part_id = p_part AND l.last_off >= v_off ORDER BY l.last_off LIMIT 1
    ) AS s
    JOIN queen.partitions AS p ON p.id = p_part
    JOIN queen.queues AS q ON q.id = p.queue_id
    CROSS JOIN LATERAL queen.segment_messages(p_part, s.last_off, ARRAY[v_off]) AS m
    CROSS JOIN LATERAL queen.message_states(ARRAY[p_part], ARRAY[v_off]) AS a
    CROSS JOIN LATERAL (
        SELECT array_agg(g.name ORDER BY g.name) AS name, array_agg(g.done ORDER BY g.name) AS done,
            array_agg(g.lease_ends ORDER BY g.name) AS lease_ends, array_agg(g.failed_at ORDER BY g.name) AS failed_at,
            array_agg(g.error ORDER BY g.name) AS error
        FROM queen.message_groups(p_part, v_off) AS g
    ) AS c
    LEFT JOIN LATERAL (
        SELECT l.error, l.retry_count FROM queen.dead_letter_queue AS l
        WHERE l.part_id = p_part AND l.off = v_off ORDER BY l.id DESC LIMIT 1
    ) AS d ON true
    WHERE v_off IS NOT NULL;
END $$;
COMMENT ON FUNCTION queen.get_message_v1 IS 'One message, with its queue and its state for each group.';
