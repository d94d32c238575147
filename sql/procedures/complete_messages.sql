-- Purpose:   completes messages in the order in which they were delivered, each run under the live lease of its cursor:
--            nearly all acknowledgements. All others go to ack_messages_v1.
-- Arguments: one element per cursor:
--            p_part, p_grp, p_lease  the cursor, and the lease that the client names
--            p_first, p_last         the offsets that are done
--            p_next_lease, p_next_batch, p_next_seconds  if this ends the lease, the next messages of the partition, at most
--                       p_next_batch, are leased at once (prefetched), as to a pop of a queue with partitions=1 that names no
--                       partition, without autoAck; null: no prefetch
-- Returns:   one row per element that was carried out: ord from 1, done_upto (all up to it was done before), released:
--            the lease ended, ready: the cursor may be claimed now: there is more, or it could not be parked; and of
--            what was prefetched upto, seen, attempt, off, created_at, ends, start and data, as pop_unified_batch_v1
--            returns them. No row: nothing was done, ack_messages_v1 judges.
-- Locks:     cursors in the order of the elements (ascending), then partitions with SKIP LOCKED.
-- Writes:    partition_consumers, each row once.
CREATE OR REPLACE FUNCTION queen.complete_messages_v1(
    p_part bigint[], p_grp bigint[], p_lease uuid[], p_first bigint[], p_last bigint[],
    p_next_lease uuid[], p_next_batch int[], p_next_seconds int[]
) RETURNS TABLE (
    ord int, done_upto bigint, released bool, ready bool, upto bigint, seen bigint, attempt int, off bigint,
    created_at timestamptz, ends bytea, start int, data bytea
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
BEGIN
    RETURN QUERY
    WITH moved AS (
        UPDATE queen.partition_consumers AS c
        SET
            acked = u.last,
            lease = CASE WHEN u.last < u.upto THEN c.lease WHEN u.next_upto IS NOT NULL THEN u.next_lease END,
            attempts = CASE WHEN u.last < c.seen THEN c.attempts ELSE 0 END
                + CASE WHEN u.next_upto IS NOT NULL THEN 1 ELSE 0 END,
            ready_at = CASE
                WHEN u.last < u.upto THEN c.ready_at
                -- The lease counts from the last moment at which a worker may hand the messages out: 50 ms from now
                -- (PREFETCHED_S in queen/engine/prefetch.py).
                WHEN u.next_upto IS NOT NULL THEN v_now + make_interval(secs => u.seconds + 0.05)
                WHEN u.next_off = u.last + 1 THEN 'infinity'
                ELSE v_now
            END,
            upto = coalesce(u.next_upto, c.upto),
            seen = greatest(c.seen, u.next_upto),
            seen_before = CASE WHEN u.next_upto IS NOT NULL THEN c.seen ELSE c.seen_before END,
            prefetched_until = CASE
                WHEN u.next_upto IS NOT NULL THEN v_now + interval '50 ms'
                WHEN c.prefetched_until > v_now THEN c.prefetched_until
            END,
            ver = c.ver + 1
        FROM (
            SELECT
                e.ord, l.tid, l.acked, l.upto, l.seen, e.last, e.next_lease,
                r.next_upto, r.seconds, r.created_at, r.ends, r.start, r.size, r.whole, r.data,
                -- Under the lock nothing is pushed to it, so parking misses no push.
                CASE WHEN k.locked THEN queen.end_of_log(l.part_id) END AS next_off
            FROM unnest(p_part, p_grp, p_lease, p_first, p_last, p_next_lease, p_next_batch, p_next_seconds)
                WITH ORDINALITY AS e (part_id, grp_id, lease, first, last, next_lease, batch, seconds, ord)
            CROSS JOIN LATERAL (
                SELECT p.ctid AS tid, p.part_id, p.grp_id, p.acked, p.upto, p.seen, p.lease, p.ready_at, p.ahead, p.retries
                FROM queen.partition_consumers AS p
                WHERE p.part_id = e.part_id AND p.grp_id = e.grp_id ORDER BY p.ver DESC LIMIT 1
                FOR UPDATE
            ) AS l
            LEFT JOIN LATERAL queen.next_of_partition(
                l.part_id, l.grp_id, e.last, e.batch, e.seconds, e.next_lease IS NOT NULL AND e.last = l.upto) AS r ON true
            LEFT JOIN LATERAL (
                SELECT true AS locked FROM queen.partition_locks AS t
                WHERE t.part_id = l.part_id AND e.last = l.upto AND r.next_upto IS NULL
                    AND NOT EXISTS (SELECT 1 FROM queen.segments AS s WHERE s.part_id = l.part_id AND s.last_off > e.last)
                FOR NO KEY UPDATE SKIP LOCKED
            ) AS k ON true
            WHERE l.lease = e.lease AND l.ready_at > v_now AND l.ahead IS NULL AND l.retries IS NULL
                AND e.first <= l.acked + 1 AND e.last > l.acked AND e.last <= l.upto
            OFFSET 0
        ) AS u
        WHERE c.ctid = u.tid
        RETURNING
            u.ord, u.acked, u.last, u.last = u.upto AS ended, c.ready_at <= v_now AS ready, u.next_upto, u.seen, c.attempts,
            u.created_at, u.ends, u.start, u.size, u.whole, u.data
    )
    SELECT
        m.ord::int, m.acked, m.ended, m.ready, m.next_upto, m.seen, m.attempts, m.last + 1, m.created_at, m.ends, m.start,
        CASE WHEN m.whole THEN m.data ELSE substr(m.data, m.start + 1, m.size) END
    FROM moved AS m;
END $$;
COMMENT ON FUNCTION queen.complete_messages_v1 IS 'Completes messages in the order of their delivery, and prefetches the next ones.';
