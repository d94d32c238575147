-- Purpose:   what was done for queues, in buckets of p_minutes, newest first.
-- Arguments: p_queue (names), p_namespace, p_task: null matches any
--            p_by_bucket, p_by_queue, p_by_worker: what the figures are kept apart by
-- Reads:     of all queues together the totals; else the rows of each queue.
CREATE OR REPLACE FUNCTION queen.list_queue_metrics_v1(
    p_from timestamptz, p_to timestamptz, p_minutes int, p_queue text[], p_namespace text, p_task text,
    p_by_bucket bool, p_by_queue bool, p_by_worker bool
) RETURNS TABLE (
    bucket timestamptz, queue text, worker text, push_requests bigint, push_messages bigint, pop_requests bigint,
    pop_messages bigint, pop_empty bigint, ack_requests bigint, ack_success bigint, ack_failed bigint,
    dead_letters bigint, transactions bigint, lag_ms_sum float8, lag_ms_max float8, parked bigint
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_all CONSTANT bool := NOT p_by_queue AND p_queue IS NULL AND p_namespace IS NULL AND p_task IS NULL;
BEGIN
    IF p_namespace IS NOT NULL OR p_task IS NOT NULL THEN
        p_queue := ARRAY(
            SELECT q.name FROM queen.queues AS q
            WHERE (p_queue IS NULL OR q.name = ANY(p_queue)) AND (p_namespace IS NULL OR q.namespace = p_namespace)
                AND (p_task IS NULL OR q.task = p_task));
    END IF;
    RETURN QUERY
    SELECT
        n.bucket, n.queue, n.worker, sum(n.push_requests)::bigint, sum(n.push_messages)::bigint,
        sum(n.pop_requests)::bigint, sum(n.pop_messages)::bigint, sum(n.pop_empty)::bigint, sum(n.ack_requests)::bigint,
        sum(n.ack_success)::bigint, sum(n.ack_failed)::bigint, sum(n.dead_letters)::bigint,
        sum(n.transactions)::bigint, sum(n.lag_ms_sum), max(n.lag_ms_max), max(n.parked)
    FROM (
        -- By minute first: the workers' parked polls add up, those of several minutes do not.
        SELECT
            k.bucket, k.queue, k.worker, sum(m.push_requests) AS push_requests, sum(m.push_messages) AS push_messages,
            sum(m.pop_requests) AS pop_requests, sum(m.pop_messages) AS pop_messages, sum(m.pop_empty) AS pop_empty,
            sum(m.ack_requests) AS ack_requests, sum(m.ack_success) AS ack_success, sum(m.ack_failed) AS ack_failed,
            sum(m.dead_letters) AS dead_letters, sum(m.transactions) AS transactions, sum(m.lag_ms_sum) AS lag_ms_sum,
            max(m.lag_ms_max) AS lag_ms_max, sum(m.parked)::bigint AS parked
        FROM (
            SELECT t.bucket, NULL AS queue, t.worker, t.push_requests, t.push_messages, t.pop_requests, t.pop_messages,
                t.pop_empty, t.ack_requests, t.ack_success, t.ack_failed, t.dead_letters, t.transactions, t.lag_ms_sum,
                t.lag_ms_max, t.parked
            FROM queen.total_metrics AS t WHERE v_all
            UNION ALL
            SELECT q.* FROM queen.queue_metrics AS q WHERE NOT v_all AND (p_queue IS NULL OR q.queue = ANY(p_queue))
        ) AS m
        CROSS JOIN LATERAL (
            SELECT
                CASE WHEN p_by_bucket THEN queen.bucket(m.bucket, p_minutes) END AS bucket,
                CASE WHEN p_by_queue THEN m.queue END AS queue, CASE WHEN p_by_worker THEN m.worker END AS worker
        ) AS k
        WHERE m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to
        GROUP BY m.bucket, k.bucket, k.queue, k.worker
    ) AS n
    GROUP BY n.bucket, n.queue, n.worker
    ORDER BY n.bucket DESC, n.queue, n.worker;
END $$;
COMMENT ON FUNCTION queen.list_queue_metrics_v1 IS 'Activity of queues in a time range.';

-- Purpose:   a page of the queues for which something was done, busiest first, and how many there are.
-- Arguments: p_queue (names): null matches any; then times longer than 5 minutes count in whole hours, those longer than 2 days
--            in whole days
CREATE OR REPLACE FUNCTION queen.find_busiest_v1(
    p_from timestamptz, p_to timestamptz, p_queue text[], p_limit int, p_offset int,
    OUT queues bigint, OUT names text[]
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_minutes CONSTANT int := CASE
        WHEN p_queue IS NOT NULL OR p_to - p_from <= interval '5 minutes' THEN 1
        WHEN p_to - p_from <= interval '2 days' THEN 60
        ELSE 1440
    END;
BEGIN
    WITH worked AS MATERIALIZED (
        SELECT m.queue, sum(m.push_messages + m.pop_messages + m.ack_success + m.ack_failed) AS messages
        FROM queen.queue_metrics AS m
        WHERE v_minutes = 1 AND m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to
            AND (p_queue IS NULL OR m.queue = ANY(p_queue))
        GROUP BY m.queue
        UNION ALL
        SELECT b.queue, sum(b.messages)
        FROM queen.busy_queues AS b
        WHERE b.minutes = v_minutes AND b.bucket >= queen.bucket(p_from, v_minutes) AND b.bucket <= p_to
        GROUP BY b.queue
    )
    SELECT
        (SELECT count(*) FROM worked),
        (
            SELECT coalesce(array_agg(b.queue), '{}')
            FROM (
                SELECT w.queue FROM worked AS w ORDER BY w.messages DESC, w.queue LIMIT p_limit OFFSET p_offset
            ) AS b
        )
    INTO queues, names;
END $$;
COMMENT ON FUNCTION queen.find_busiest_v1 IS 'The most active queues of a time range.';

-- Purpose:   the maximum number of waiting long polls, by queue and worker, in buckets of p_minutes, newest first: a
--            page.
CREATE OR REPLACE FUNCTION queen.list_parked_v1(
    p_from timestamptz, p_to timestamptz, p_minutes int, p_queue text[], p_limit int, p_offset int
) RETURNS TABLE (bucket timestamptz, queue text, worker text, parked bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_from CONSTANT timestamptz := queen.bucket(p_from, 1);
    v_end timestamptz := p_to + interval '1 microsecond';
BEGIN
    -- Bucket by bucket, as far as the page goes.
    WHILE p_limit > 0 LOOP
        SELECT queen.bucket(max(m.bucket), p_minutes) INTO bucket FROM queen.queue_metrics AS m
        WHERE m.bucket >= v_from AND m.bucket < v_end AND m.parked > 0 AND (p_queue IS NULL OR m.queue = ANY(p_queue));
        EXIT WHEN bucket IS NULL;
        FOR queue, worker, parked IN
            SELECT m.queue, m.worker, max(m.parked) FROM queen.queue_metrics AS m
            WHERE m.bucket >= greatest(list_parked_v1.bucket, v_from) AND m.bucket < v_end AND m.parked > 0
                AND (p_queue IS NULL OR m.queue = ANY(p_queue))
            GROUP BY m.queue, m.worker ORDER BY m.queue, m.worker LIMIT p_limit + p_offset
        LOOP
            IF p_offset > 0 THEN
                p_offset := p_offset - 1;
            ELSE
                p_limit := p_limit - 1;
                RETURN NEXT;
            END IF;
        END LOOP;
        v_end := bucket;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.list_parked_v1 IS 'The maximum of waiting long polls of queues, by worker.';

-- Purpose:   a page of the workers that reported in a time, the one that was seen last first, and how many there are.
-- Arguments: p_hostname, p_worker_id: null matches any
CREATE OR REPLACE FUNCTION queen.find_workers_v1(
    p_from timestamptz, p_to timestamptz, p_hostname text, p_worker_id int, p_limit int, p_offset int,
    OUT workers bigint, OUT names text[]
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH seen AS MATERIALIZED (
        SELECT m.worker, max(m.last_seen) AS last_seen FROM queen.worker_metrics AS m
        WHERE m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to
            AND (p_hostname IS NULL OR m.hostname = p_hostname) AND (p_worker_id IS NULL OR m.worker_id = p_worker_id)
        GROUP BY m.worker
    )
    SELECT
        (SELECT count(*) FROM seen),
        (
            SELECT coalesce(array_agg(b.worker), '{}')
            FROM (
                SELECT w.worker FROM seen AS w ORDER BY w.last_seen DESC, w.worker LIMIT p_limit OFFSET p_offset
            ) AS b
        );
END;
COMMENT ON FUNCTION queen.find_workers_v1 IS 'The workers that reported in a time range.';

-- Purpose:   reads the samples of workers, in buckets of p_minutes, newest first.
-- Arguments: p_hostname, p_worker_id, p_worker (names, as queen.find_workers_v1 gives them): null matches any;
--            p_by_bucket, p_by_worker: what the figures are kept apart by
-- Returns:   loop_lag_ms is an average over samples; cpu_* percent of one core, each of workers and minutes; the pools
--            of workers add up.
CREATE OR REPLACE FUNCTION queen.list_worker_metrics_v1(
    p_from timestamptz, p_to timestamptz, p_minutes int, p_hostname text, p_worker_id int,
    p_worker text[], p_by_bucket bool, p_by_worker bool
) RETURNS TABLE (
    bucket timestamptz, hostname text, worker_id int, samples bigint, jobs bigint, db_errors bigint, loop_lag_ms float8,
    loop_lag_ms_max float8, cpu_user float8, cpu_user_max float8, cpu_system float8, cpu_system_max float8,
    rss_bytes bigint, rss_bytes_max bigint, virtual_bytes bigint, pool_size bigint, pool_idle bigint, queued bigint,
    waiting bigint, last_seen timestamptz, pool_idle_avg float8, queued_avg float8
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        n.bucket, n.hostname, n.worker_id, sum(n.samples)::bigint, sum(n.jobs)::bigint, sum(n.db_errors)::bigint,
        sum(n.loop_lag_ms_sum) / sum(n.samples), max(n.loop_lag_ms_max),
        avg(n.cpu_user), max(n.cpu_user), avg(n.cpu_system), max(n.cpu_system),
        avg(n.rss_bytes)::bigint, max(n.rss_bytes)::bigint, avg(n.virtual_bytes)::bigint, max(n.pool_size)::bigint,
        min(n.pool_idle)::bigint, max(n.queued)::bigint, max(n.waiting)::bigint, max(n.last_seen),
        avg(n.pool_idle_avg), avg(n.queued_avg)
    FROM (
        SELECT
            k.bucket, k.hostname, k.worker_id, sum(m.samples) AS samples, sum(m.jobs) AS jobs,
            sum(m.db_errors) AS db_errors, sum(m.loop_lag_ms_sum) AS loop_lag_ms_sum,
            max(m.loop_lag_ms_max) AS loop_lag_ms_max,
            sum(m.cpu_user_ms) / 600 AS cpu_user, sum(m.cpu_system_ms) / 600 AS cpu_system,
            sum(m.rss_bytes) AS rss_bytes, sum(m.virtual_bytes) AS virtual_bytes, sum(m.pool_size) AS pool_size,
            sum(m.pool_idle) AS pool_idle, sum(m.queued) AS queued, sum(m.waiting) AS waiting,
            max(m.last_seen) AS last_seen, sum(coalesce(m.totals[6] / m.seconds, m.pool_idle)) AS pool_idle_avg,
            sum(coalesce(m.totals[8] / m.seconds, m.queued)) AS queued_avg
        FROM queen.worker_metrics AS m
        CROSS JOIN LATERAL (
            SELECT
                CASE WHEN p_by_bucket THEN queen.bucket(m.bucket, p_minutes) END AS bucket,
                CASE WHEN p_by_worker THEN m.hostname END AS hostname,
                CASE WHEN p_by_worker THEN m.worker_id END AS worker_id
        ) AS k
        WHERE m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to
            AND (p_hostname IS NULL OR m.hostname = p_hostname) AND (p_worker_id IS NULL OR m.worker_id = p_worker_id)
            AND (p_worker IS NULL OR m.worker = any(p_worker))
        GROUP BY m.bucket, k.bucket, k.hostname, k.worker_id
    ) AS n
    GROUP BY n.bucket, n.hostname, n.worker_id
    ORDER BY n.bucket DESC, n.hostname, n.worker_id;
END;
COMMENT ON FUNCTION queen.list_worker_metrics_v1 IS 'Statistics of workers in a time range.';

-- Purpose:   what retention and eviction removed, in buckets of p_minutes, newest first.
CREATE OR REPLACE FUNCTION queen.list_retention_metrics_v1(p_from timestamptz, p_to timestamptz, p_minutes int)
RETURNS TABLE (
    bucket timestamptz, retention_messages bigint, completed_retention_messages bigint, eviction_messages bigint,
    events bigint
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT k.bucket, sum(m.retention_messages)::bigint,
        sum(m.completed_retention_messages)::bigint, sum(m.eviction_messages)::bigint, sum(m.events)::bigint
    FROM queen.retention_metrics AS m
    CROSS JOIN LATERAL (SELECT queen.bucket(m.bucket, p_minutes) AS bucket) AS k
    WHERE m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to
    GROUP BY k.bucket ORDER BY k.bucket DESC;
END;
COMMENT ON FUNCTION queen.list_retention_metrics_v1 IS 'Messages removed by retention and eviction in a time range.';

-- Purpose:   what workers measured once a second, by bucket.
-- Arguments: a time range, the length of a bucket, the workers.
-- Returns:   one row per bucket and worker, newest first: how many seconds were measured, and the average, minimum, maximum and last
--            value of each level, in the order of the comment of queen.worker_metrics.totals.
CREATE OR REPLACE FUNCTION queen.list_worker_levels_v1(
    p_from timestamptz, p_to timestamptz, p_minutes int, p_worker text[]
) RETURNS TABLE (
    bucket timestamptz, hostname text, worker_id int, port int, seconds bigint, averages float8[], lows float8[],
    highs float8[], lasts float8[]
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        n.bucket, n.hostname, n.worker_id, max(n.port), max(n.seconds), array_agg(n.average ORDER BY n.n),
        array_agg(n.low ORDER BY n.n), array_agg(n.high ORDER BY n.n), array_agg(n.last ORDER BY n.n)
    FROM (
        SELECT
            queen.bucket(m.bucket, p_minutes) AS bucket, m.worker, m.hostname, m.worker_id, u.n,
            (array_agg(m.port ORDER BY m.bucket DESC))[1] AS port, sum(m.seconds) AS seconds,
            sum(u.total) / sum(m.seconds) AS average, min(u.low) AS low, max(u.high) AS high,
            (array_agg(u.last ORDER BY m.bucket DESC))[1] AS last
        FROM queen.worker_metrics AS m
        CROSS JOIN LATERAL
            unnest(m.totals, m.lows, m.highs, m.lasts) WITH ORDINALITY AS u (total, low, high, last, n)
        WHERE m.bucket >= queen.bucket(p_from, 1) AND m.bucket <= p_to AND m.worker = any(p_worker) AND m.seconds > 0
        GROUP BY queen.bucket(m.bucket, p_minutes), m.worker, m.hostname, m.worker_id, u.n
    ) AS n
    GROUP BY n.bucket, n.worker, n.hostname, n.worker_id
    ORDER BY n.bucket DESC, n.hostname, n.worker_id;
END;
COMMENT ON FUNCTION queen.list_worker_levels_v1 IS 'What workers measured once a second: averages, minima, maxima.';
