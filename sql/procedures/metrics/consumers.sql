-- Purpose:   replaces what a worker has reported of its connected consumers; removes what others no longer report.
-- Arguments: p_seconds: how long the report counts; one element per consumer, as the columns of queen.connected_consumers
-- Writes:    connected_consumers.
CREATE OR REPLACE FUNCTION queen.record_consumers_v1(
    p_worker text, p_seconds float8, p_queue text[], p_namespace text[], p_task text[], p_group text[], p_kind text[],
    p_address text[], p_since timestamptz[], p_in_flight int[]
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now CONSTANT timestamptz := clock_timestamp();
BEGIN
    DELETE FROM queen.connected_consumers AS c WHERE c.worker = p_worker;
    DELETE FROM queen.connected_consumers AS c WHERE c.ctid = ANY(ARRAY(
        SELECT o.ctid FROM queen.connected_consumers AS o
        WHERE o.until < v_now ORDER BY o.until LIMIT 10000 FOR UPDATE SKIP LOCKED));
    INSERT INTO queen.connected_consumers
    SELECT
        p_worker, u.n, u.queue, u.namespace, u.task, u.consumer_group, u.kind, u.address, u.since, u.in_flight,
        v_now + make_interval(secs => p_seconds)
    FROM unnest(p_queue, p_namespace, p_task, p_group, p_kind, p_address, p_since, p_in_flight) WITH ORDINALITY
        AS u (queue, namespace, task, consumer_group, kind, address, since, in_flight, n)
    -- A request that reports at the same time has written the same.
    ON CONFLICT (worker, n) DO NOTHING;
END $$;
COMMENT ON FUNCTION queen.record_consumers_v1 IS 'Replaces the connected consumers that a worker has reported.';

-- Purpose:   a page of the connected consumers of a group that get messages of a queue, the longest connected first.
-- Returns:   total: how many there are.
CREATE OR REPLACE FUNCTION queen.list_consumers_v1(p_queue text, p_group text, p_limit int, p_offset int)
RETURNS TABLE (
    kind text, address text, since timestamptz, in_flight int, namespace text, task text, worker text, total bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT c.kind, c.address, c.since, c.in_flight, c.namespace, c.task, c.worker, count(*) OVER ()
    FROM queen.queues AS q
    JOIN queen.connected_consumers AS c ON c.consumer_group = p_group AND c.until > clock_timestamp() AND (
        c.queue = q.name
        OR (c.queue = '' AND coalesce(c.namespace, q.namespace) = q.namespace AND coalesce(c.task, q.task) = q.task)
    )
    WHERE q.name = p_queue
    ORDER BY c.since, c.worker, c.n LIMIT p_limit OFFSET p_offset;
END $$;
COMMENT ON FUNCTION queen.list_consumers_v1 IS 'The connected consumers of a group.';

-- Purpose:   the lag of a group over time, in buckets of p_minutes, newest first: the largest of each; none without a lag.
CREATE OR REPLACE FUNCTION queen.list_group_lag_v1(
    p_queue text, p_group text, p_from timestamptz, p_to timestamptz, p_minutes int
) RETURNS TABLE (bucket timestamptz, lag bigint, oldest_s float8)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT queen.bucket(m.bucket, p_minutes), max(m.lag), max(m.oldest_s)
    FROM queen.queues AS q
    JOIN queen.consumer_groups_metadata AS g ON g.queue_id = q.id AND g.name = p_group
    JOIN queen.group_metrics AS m ON m.grp_id = g.id AND m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to
    WHERE q.name = p_queue
    GROUP BY 1 ORDER BY 1 DESC;
END $$;
COMMENT ON FUNCTION queen.list_group_lag_v1 IS 'The lag of a group over time.';
