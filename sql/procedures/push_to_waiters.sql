-- Purpose:   pushes messages and leases them to pops that wait for them, in the same transaction and without reading
--            them.
-- Arguments: those of push_messages_v1, and by waiting pop, in the order in which they are served:
--            p_wait_grp, p_wait_lease  its group, and the lease that it gets; null completes what it gets (autoAck)
--            p_wait_batch, p_wait_parts, p_wait_seconds  most messages, most partitions, length of the lease or null for the queue's
-- Returns:   the rows of push_messages_v1; and of what a waiting pop gets one row per partition: part_id, first_off and
--            upto of the run, pop (its number, from 1), grp_id, seen and attempt as pop_unified_batch_v1.
-- Locks:     as push_messages_v1, then parked cursors in (part_id, grp_id) order.
-- Writes:    as push_messages_v1.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]), part_id + 0.
CREATE OR REPLACE FUNCTION queen.push_to_waiters_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint, p_limited bigint[],
    p_wait_grp bigint[], p_wait_lease uuid[], p_wait_batch int[], p_wait_parts int[], p_wait_seconds int[]
) RETURNS TABLE (
    part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[], room bigint,
    pop int, grp_id bigint, upto bigint, seen bigint, attempt int
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
    v_cursor record;
    -- As many cursors as the pops may take.
    v_room CONSTANT int := (
        SELECT least(sum(least(w.batch, w.parts)), 1000) FROM unnest(p_wait_batch, p_wait_parts) AS w (batch, parts));
    v_pop int;
    v_messages int;
    c_part bigint[] := '{}';  -- cursors, and what becomes of them
    c_grp bigint[] := '{}';
    c_ver bigint[] := '{}';
    c_pop int[] := '{}';
    c_acked bigint[] := '{}';
    c_upto bigint[] := '{}';
    c_ready_at timestamptz[] := '{}';
BEGIN
    RETURN QUERY
    SELECT r.*, NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::int
    FROM queen.push_messages_v1(
        p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version, p_limited,
        p_wait_grp) AS r;
    FOR v_cursor IN
        SELECT
            c.part_id, c.grp_id, c.ver, c.acked, e.next_off - 1 AS last, q.lease_time,
            greatest(q.delayed_processing, q.window_buffer) AS delay, g.paused OR q.paused AS paused,
            -- All of the segment as it was sent: none of it was a duplicate.
            e.next_off - 1 - c.acked = u.n AS whole
        FROM unnest(p_part, p_n) AS u (part_id, n)
        CROSS JOIN LATERAL (SELECT l.next_off FROM queen.log_ends AS l WHERE l.part_id = u.part_id OFFSET 0) AS e
        CROSS JOIN LATERAL (
            SELECT p.part_id, p.grp_id, p.ver, p.acked FROM queen.partition_consumers AS p
            WHERE p.part_id + 0 = u.part_id AND p.acked < e.next_off - 1 AND p.ready_at = 'infinity'
            ORDER BY p.grp_id + 0 FOR UPDATE
        ) AS c
        JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[c.grp_id])
        JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
        LIMIT v_room
    LOOP
        v_pop := NULL;
        IF v_cursor.delay = 0 AND v_cursor.whole AND NOT v_cursor.paused THEN
            SELECT w.pop INTO v_pop
            FROM unnest(p_wait_grp, p_wait_batch, p_wait_parts) WITH ORDINALITY AS w (grp_id, batch, parts, pop)
            WHERE w.grp_id = v_cursor.grp_id AND w.batch > 0 AND w.parts > 0 ORDER BY w.pop LIMIT 1;
        END IF;
        c_part := c_part || v_cursor.part_id;
        c_grp := c_grp || v_cursor.grp_id;
        c_ver := c_ver || v_cursor.ver;
        c_pop := c_pop || v_pop;
        c_acked := c_acked || v_cursor.acked;
        IF v_pop IS NULL THEN
            c_upto := c_upto || NULL::bigint;
            c_ready_at := c_ready_at || v_now + make_interval(secs => v_cursor.delay);
        ELSE
            v_messages := least(v_cursor.last - v_cursor.acked, p_wait_batch[v_pop]);
            p_wait_batch[v_pop] := p_wait_batch[v_pop] - v_messages;
            p_wait_parts[v_pop] := p_wait_parts[v_pop] - 1;
            c_upto := c_upto || v_cursor.acked + v_messages;
            c_ready_at := c_ready_at || CASE
                WHEN p_wait_lease[v_pop] IS NOT NULL
                THEN v_now + make_interval(secs => coalesce(p_wait_seconds[v_pop], nullif(v_cursor.lease_time, 0), 60))
                WHEN v_messages < v_cursor.last - v_cursor.acked THEN v_now
                ELSE 'infinity'
            END;
        END IF;
    END LOOP;
    IF c_part <> '{}' THEN
        RETURN QUERY
        WITH woken AS (
            UPDATE queen.partition_consumers AS c
            SET
                ready_at = u.ready_at, ver = c.ver + 1, lease = p_wait_lease[u.pop], upto = coalesce(u.upto, c.upto),
                acked = CASE WHEN u.pop IS NOT NULL AND p_wait_lease[u.pop] IS NULL THEN u.upto ELSE c.acked END,
                seen = greatest(c.seen, u.upto),
                seen_before = CASE WHEN u.pop IS NULL THEN c.seen_before ELSE c.seen END,
                attempts = c.attempts + CASE WHEN p_wait_lease[u.pop] IS NULL THEN 0 ELSE 1 END
            FROM unnest(c_part, c_grp, c_ver, c_pop, c_acked, c_upto, c_ready_at)
                AS u (part_id, grp_id, ver, pop, acked, upto, ready_at)
            WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver
            RETURNING c.part_id, u.acked, u.pop, c.grp_id, u.upto, c.seen_before
        )
        SELECT w.part_id, w.acked + 1, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint, w.pop, w.grp_id, w.upto,
            w.seen_before, 1
        FROM woken AS w WHERE w.pop IS NOT NULL;
    END IF;
    IF cardinality(c_part) = v_room THEN
        -- The other cursors are ready for the next pop.
        PERFORM queen.wake(array_agg(e.part_id), array_agg(e.first_off), v_now)
        FROM (
            SELECT u.part_id, l.last_off - l.n + 1 AS first_off
            FROM unnest(p_part) AS u (part_id)
            CROSS JOIN LATERAL (
                SELECT s.last_off, s.n FROM queen.segments AS s WHERE s.part_id = u.part_id ORDER BY s.last_off DESC LIMIT 1
            ) AS l
        ) AS e;
    END IF;
END $$;
COMMENT ON FUNCTION queen.push_to_waiters_v1 IS 'A push whose messages are leased to waiting long polls.';
