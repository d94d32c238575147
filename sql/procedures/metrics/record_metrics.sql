-- Purpose:   adds what a worker has counted since its last call.
-- Arguments: one element per minute and queue; all of one worker. Values are added to what is there, largest values kept.
-- Locks:     rows of busy_queues, which workers share, in the order of their key.
-- Writes:    queue_metrics, total_metrics, busy_queues.
CREATE OR REPLACE FUNCTION queen.record_queue_metrics_v1(
    p_worker text, p_bucket timestamptz[], p_queue text[], p_push_requests bigint[], p_push_messages bigint[],
    p_pop_requests bigint[], p_pop_messages bigint[], p_pop_empty bigint[], p_ack_requests bigint[],
    p_ack_success bigint[], p_ack_failed bigint[], p_dead_letters bigint[], p_transactions bigint[],
    p_lag_ms_sum float8[], p_lag_ms_max float8[], p_parked bigint[]
) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen.queue_metrics AS m (
        bucket, queue, worker, push_requests, push_messages, pop_requests, pop_messages, pop_empty, ack_requests,
        ack_success, ack_failed, dead_letters, transactions, lag_ms_sum, lag_ms_max, parked
    )
    SELECT
        u.bucket, u.queue, p_worker, u.push_requests, u.push_messages, u.pop_requests, u.pop_messages, u.pop_empty,
        u.ack_requests, u.ack_success, u.ack_failed, u.dead_letters, u.transactions, u.lag_ms_sum, u.lag_ms_max, u.parked
    FROM unnest(
        p_bucket, p_queue, p_push_requests, p_push_messages, p_pop_requests, p_pop_messages, p_pop_empty, p_ack_requests,
        p_ack_success, p_ack_failed, p_dead_letters, p_transactions, p_lag_ms_sum, p_lag_ms_max, p_parked
    ) AS u (
        bucket, queue, push_requests, push_messages, pop_requests, pop_messages, pop_empty, ack_requests, ack_success,
        ack_failed, dead_letters, transactions, lag_ms_sum, lag_ms_max, parked
    )
    ON CONFLICT (bucket, queue, worker) DO UPDATE SET
        push_requests = m.push_requests + excluded.push_requests,
        push_messages = m.push_messages + excluded.push_messages,
        pop_requests = m.pop_requests + excluded.pop_requests,
        pop_messages = m.pop_messages + excluded.pop_messages,
        pop_empty = m.pop_empty + excluded.pop_empty,
        ack_requests = m.ack_requests + excluded.ack_requests,
        ack_success = m.ack_success + excluded.ack_success,
        ack_failed = m.ack_failed + excluded.ack_failed,
        dead_letters = m.dead_letters + excluded.dead_letters,
        transactions = m.transactions + excluded.transactions,
        lag_ms_sum = m.lag_ms_sum + excluded.lag_ms_sum,
        lag_ms_max = greatest(m.lag_ms_max, excluded.lag_ms_max),
        parked = greatest(m.parked, excluded.parked);
    INSERT INTO queen.total_metrics AS m (
        bucket, worker, push_requests, push_messages, pop_requests, pop_messages, pop_empty, ack_requests, ack_success,
        ack_failed, dead_letters, transactions, lag_ms_sum, lag_ms_max, parked
    )
    SELECT
        u.bucket, p_worker, sum(u.push_requests), sum(u.push_messages), sum(u.pop_requests), sum(u.pop_messages),
        sum(u.pop_empty), sum(u.ack_requests), sum(u.ack_success), sum(u.ack_failed), sum(u.dead_letters),
        sum(u.transactions), sum(u.lag_ms_sum), max(u.lag_ms_max), sum(u.parked)
    FROM unnest(
        p_bucket, p_push_requests, p_push_messages, p_pop_requests, p_pop_messages, p_pop_empty, p_ack_requests,
        p_ack_success, p_ack_failed, p_dead_letters, p_transactions, p_lag_ms_sum, p_lag_ms_max, p_parked
    ) AS u (
        bucket, push_requests, push_messages, pop_requests, pop_messages, pop_empty, ack_requests, ack_success,
        ack_failed, dead_letters, transactions, lag_ms_sum, lag_ms_max, parked
    )
    GROUP BY u.bucket
    ON CONFLICT (bucket, worker) DO UPDATE SET
        push_requests = m.push_requests + excluded.push_requests,
        push_messages = m.push_messages + excluded.push_messages,
        pop_requests = m.pop_requests + excluded.pop_requests,
        pop_messages = m.pop_messages + excluded.pop_messages,
        pop_empty = m.pop_empty + excluded.pop_empty,
        ack_requests = m.ack_requests + excluded.ack_requests,
        ack_success = m.ack_success + excluded.ack_success,
        ack_failed = m.ack_failed + excluded.ack_failed,
        dead_letters = m.dead_letters + excluded.dead_letters,
        transactions = m.transactions + excluded.transactions,
        lag_ms_sum = m.lag_ms_sum + excluded.lag_ms_sum,
        lag_ms_max = greatest(m.lag_ms_max, excluded.lag_ms_max),
        parked = greatest(m.parked, excluded.parked);
    INSERT INTO queen.busy_queues AS b (minutes, bucket, queue, messages)
    SELECT l.minutes, queen.bucket(u.bucket, l.minutes), u.queue, sum(u.messages)
    FROM unnest(p_bucket, p_queue, p_push_messages, p_pop_messages, p_ack_success, p_ack_failed)
        AS c (bucket, queue, pushed, popped, acked, failed)
    CROSS JOIN LATERAL (SELECT c.bucket, c.queue COLLATE "C" AS queue, c.pushed + c.popped + c.acked + c.failed AS messages) AS u
    CROSS JOIN (VALUES (60), (1440)) AS l (minutes)
    GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
    ON CONFLICT (minutes, bucket, queue) DO UPDATE SET messages = b.messages + excluded.messages;
END $$;
COMMENT ON FUNCTION queen.record_queue_metrics_v1 IS 'Adds the counts of a worker for its queues.';

-- Purpose:   adds one sample of a worker to its minute; removes metrics older than p_keep, some ten thousand per call.
-- Arguments: the state of the worker and its counts since the last sample; p_seconds: how often it has measured its levels since;
--            p_totals, p_lows, p_highs, p_lasts: their sums, minima, maxima and last values, in the order of the columns' comment.
-- Writes:    worker_metrics, queue_metrics, total_metrics, busy_queues, retention_metrics, group_metrics.
CREATE OR REPLACE FUNCTION queen.record_worker_metrics_v1(
    p_bucket timestamptz, p_worker text, p_hostname text, p_worker_id int, p_jobs bigint, p_db_errors bigint,
    p_loop_lag_ms float8, p_cpu_user_ms float8, p_cpu_system_ms float8, p_rss_bytes bigint, p_virtual_bytes bigint,
    p_pool_size int, p_pool_idle int, p_queued int, p_waiting int, p_keep interval, p_port int, p_seconds int,
    p_totals float8[], p_lows float8[], p_highs float8[], p_lasts float8[]
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_oldest timestamptz := queen.older_than(p_keep, NULL);
    v_most CONSTANT int := 20000;
BEGIN
    INSERT INTO queen.worker_metrics AS m (
        bucket, worker, hostname, worker_id, samples, jobs, db_errors, loop_lag_ms_sum, loop_lag_ms_max, cpu_user_ms,
        cpu_system_ms, rss_bytes, virtual_bytes, pool_size, pool_idle, queued, waiting, last_seen, port, seconds, totals,
        lows, highs, lasts
    )
    VALUES (
        p_bucket, p_worker, p_hostname, p_worker_id, 1, p_jobs, p_db_errors, p_loop_lag_ms, p_loop_lag_ms, p_cpu_user_ms,
        p_cpu_system_ms, p_rss_bytes, p_virtual_bytes, p_pool_size, p_pool_idle, p_queued, p_waiting, clock_timestamp(),
        p_port, p_seconds, p_totals, p_lows, p_highs, p_lasts
    )
    ON CONFLICT (bucket, worker) DO UPDATE SET
        samples = m.samples + 1, jobs = m.jobs + excluded.jobs, db_errors = m.db_errors + excluded.db_errors,
        loop_lag_ms_sum = m.loop_lag_ms_sum + excluded.loop_lag_ms_sum,
        loop_lag_ms_max = greatest(m.loop_lag_ms_max, excluded.loop_lag_ms_max),
        cpu_user_ms = m.cpu_user_ms + excluded.cpu_user_ms, cpu_system_ms = m.cpu_system_ms + excluded.cpu_system_ms,
        rss_bytes = excluded.rss_bytes, virtual_bytes = excluded.virtual_bytes, pool_size = excluded.pool_size,
        pool_idle = least(m.pool_idle, excluded.pool_idle), queued = greatest(m.queued, excluded.queued),
        waiting = greatest(m.waiting, excluded.waiting), last_seen = excluded.last_seen, port = excluded.port,
        seconds = coalesce(m.seconds, 0) + excluded.seconds,
        totals = ARRAY(
            SELECT coalesce(u.mine, 0) + u.new FROM unnest(m.totals, excluded.totals) WITH ORDINALITY AS u (mine, new, n)
            ORDER BY u.n
        ),
        lows = ARRAY(
            SELECT least(u.mine, u.new) FROM unnest(m.lows, excluded.lows) WITH ORDINALITY AS u (mine, new, n)
            ORDER BY u.n
        ),
        highs = ARRAY(
            SELECT greatest(u.mine, u.new) FROM unnest(m.highs, excluded.highs) WITH ORDINALITY AS u (mine, new, n)
            ORDER BY u.n
        ),
        lasts = excluded.lasts;
    DELETE FROM queen.queue_metrics AS m WHERE m.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.queue_metrics AS l WHERE l.bucket < v_oldest ORDER BY l.bucket LIMIT v_most));
    DELETE FROM queen.total_metrics AS m WHERE m.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.total_metrics AS l WHERE l.bucket < v_oldest ORDER BY l.bucket LIMIT v_most));
    DELETE FROM queen.busy_queues AS m WHERE m.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.busy_queues AS l
        WHERE l.minutes IN (60, 1440) AND l.bucket < v_oldest - interval '1 day' LIMIT v_most));
    DELETE FROM queen.worker_metrics AS m WHERE m.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.worker_metrics AS l WHERE l.bucket < v_oldest ORDER BY l.bucket LIMIT v_most));
    DELETE FROM queen.retention_metrics AS m WHERE m.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.retention_metrics AS l WHERE l.bucket < v_oldest ORDER BY l.bucket LIMIT v_most));
    DELETE FROM queen.group_metrics AS m WHERE m.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.group_metrics AS l WHERE l.bucket < v_oldest ORDER BY l.bucket LIMIT v_most));
END $$;
COMMENT ON FUNCTION queen.record_worker_metrics_v1 IS 'Adds one sample of a worker to its minute.';
