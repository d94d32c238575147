-- The messages of a partition that are prefetched when everything up to p_acked is done: those that a pop of p_batch
-- messages would get. No row if the fast path would not serve that pop, if it needs two segments, or if it has much
-- data.
CREATE OR REPLACE FUNCTION queen.next_of_partition(
    p_part bigint, p_grp bigint, p_acked bigint, p_batch int, p_seconds int, p_wanted bool
) RETURNS TABLE (
    next_upto bigint, seconds int, created_at timestamptz, ends bytea, start int, size int, whole bool, data bytea
)
LANGUAGE sql STABLE
AS $$
    SELECT
        s.first_off + w.hi, coalesce(p_seconds, nullif(q.lease_time, 0), 60), s.created_at,
        CASE WHEN w.lo > 0 THEN substr(e.part, 5) ELSE e.part END, b.start, b.size, w.lo = 0 AND w.hi = s.n - 1, s.data
    FROM (
        SELECT l.last_off, l.n, l.last_off - l.n + 1 AS first_off, l.created_at, l.ends, l.data
        FROM queen.segments AS l
        WHERE p_wanted AND l.part_id = p_part AND l.last_off > p_acked AND l.n > 0 ORDER BY l.last_off LIMIT 1
    ) AS s
    JOIN queen.consumer_groups_metadata AS g ON g.id = p_grp
    JOIN queen.queues AS q ON q.id = g.queue_id
    CROSS JOIN LATERAL (
        SELECT greatest(p_acked + 1 - s.first_off, 0)::int AS lo,
            (least(s.last_off, p_acked + p_batch) - s.first_off)::int AS hi
        OFFSET 0
    ) AS w
    -- The ends that are needed, fetched once (OFFSET 0): the column may be stored out of line.
    CROSS JOIN LATERAL (
        SELECT substr(s.ends, 4 * greatest(w.lo - 1, 0) + 1, 4 * (w.hi - greatest(w.lo - 1, 0) + 1)) AS part OFFSET 0
    ) AS e
    CROSS JOIN LATERAL (
        SELECT c.start, queen.message_end(e.part, octet_length(e.part) / 4 - 1) - c.start AS size
        FROM (SELECT CASE WHEN w.lo > 0 THEN queen.message_end(e.part, 0) ELSE 0 END AS start) AS c
        OFFSET 0
    ) AS b
    WHERE q.delayed_processing = 0 AND q.window_buffer = 0 AND NOT (g.paused OR q.paused) AND b.size <= 65536 AND (
        p_acked + p_batch <= s.last_off
        OR NOT EXISTS (SELECT 1 FROM queen.segments AS m WHERE m.part_id = p_part AND m.last_off > s.last_off)
    );
$$;
COMMENT ON FUNCTION queen.next_of_partition IS 'Internal: the messages to prefetch of a partition.';

-- The log end of a partition now, also for a statement that began earlier.
CREATE OR REPLACE FUNCTION queen.end_of_log(p_part bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (SELECT e.next_off FROM queen.log_ends AS e WHERE e.part_id = p_part);
END $$;
COMMENT ON FUNCTION queen.end_of_log IS 'Internal: the log end of a partition.';
