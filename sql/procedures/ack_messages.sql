-- Purpose:   completes, fails, retries or dead-letters delivered messages of many cursors.
-- Arguments: one element per message or, for those completed under a lease, a run of messages:
--            p_part, p_grp   the cursor        p_lease  lease named by the client, or null
--            p_kind          c completed, f failed, r retry, d dead letter
--            p_first, p_last offsets, or null where p_hash names the message by its transaction id (queen.transaction_hash)
--            p_error         text for a dead letter, or null
--            p_final         f means d, and what is done already is refused (transactions)
-- Returns:   one row per element: ord from 1, problem (null: accepted), first_off, done_upto and also_done (what was
--            done before the call: up to it, and these), within (offsets above it were refused; null: no bound),
--            exists_upto (there is no message above it; null: all exist), released: the lease ended, dead: a dead
--            letter was written, ready: the lease ended and more is to be delivered.
-- Locks:     cursors in (part_id, grp_id) order, then partitions with SKIP LOCKED.
-- Writes:    partition_consumers, dead_letter_queue.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION queen.ack_messages_v1(
    p_part bigint[], p_grp bigint[], p_lease uuid[], p_kind text[], p_first bigint[], p_last bigint[],
    p_hash uuid[], p_error text[], p_final bool DEFAULT false
) RETURNS TABLE (
    ord int, problem text, first_off bigint, done_upto bigint, also_done bigint[], within bigint,
    exists_upto bigint, released bool, dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
    v_answered int := 0;
    m_part bigint[];          -- cursors that move by the fast path: one array per column
    m_grp bigint[];
    m_ver bigint[];
    m_acked bigint[];
    m_last bigint[];
    m_upto bigint[];
    m_drained bool[];         -- whether the partition looks drained
    m_locked bool[];          -- and is locked
    o_part bigint[];          -- the others
    o_grp bigint[];
    o_ver bigint[];
BEGIN
    IF array_position(p_first, NULL) IS NOT NULL THEN
        SELECT array_agg(coalesce(u.first, t.off) ORDER BY u.ord), array_agg(coalesce(u.last, t.off) ORDER BY u.ord)
        INTO p_first, p_last
        FROM unnest(p_part, p_first, p_last, p_hash) WITH ORDINALITY AS u (part_id, first, last, hash, ord)
        LEFT JOIN queen.transaction_ids AS t
            ON u.first IS NULL AND t.part_id = ANY(ARRAY[u.part_id]) AND t.hash = u.hash;
    END IF;

    -- The fast path: all elements of the cursor complete, under its live lease, one run that begins at the cursor.
    SELECT
        array_agg(e.part_id) FILTER (WHERE e.plain), array_agg(e.grp_id) FILTER (WHERE e.plain),
        array_agg(e.ver) FILTER (WHERE e.plain), array_agg(e.acked) FILTER (WHERE e.plain),
        array_agg(e.last) FILTER (WHERE e.plain), array_agg(e.upto) FILTER (WHERE e.plain),
        array_agg(e.next_off <= e.last + 1) FILTER (WHERE e.plain),
        array_agg(e.part_id) FILTER (WHERE NOT e.plain), array_agg(e.grp_id) FILTER (WHERE NOT e.plain),
        array_agg(e.ver) FILTER (WHERE NOT e.plain)
    INTO m_part, m_grp, m_ver, m_acked, m_last, m_upto, m_drained, o_part, o_grp, o_ver
    FROM (
        SELECT
            c.part_id, c.grp_id, c.ver, c.acked, c.upto, a.last, n.next_off,
            coalesce(
                a.completes AND c.lease = ALL(a.leases) AND c.ready_at > v_now AND c.ahead IS NULL AND c.retries IS NULL
                AND a.first <= c.acked + 1 AND a.last > c.acked AND a.last <= c.upto AND (a.first > c.acked OR NOT p_final)
                AND (a.elements = 1 OR a.runs = int8multirange(int8range(a.first, a.last, '[]'))), false) AS plain
        FROM (
            SELECT
                u.part_id, u.grp_id, count(*) AS elements, array_agg(u.lease) AS leases,
                min(u.first) AS first, max(u.last) AS last, bool_and(u.kind = 'c' AND u.first IS NOT NULL) AS completes,
                range_agg(int8range(u.first, u.last, '[]')) AS runs
            FROM unnest(p_part, p_grp, p_lease, p_kind, p_first, p_last) AS u (part_id, grp_id, lease, kind, first, last)
            GROUP BY u.part_id, u.grp_id
            ORDER BY u.part_id, u.grp_id
        ) AS a
        CROSS JOIN LATERAL (
            SELECT l.* FROM queen.partition_consumers AS l
            WHERE l.part_id = a.part_id AND l.grp_id = a.grp_id ORDER BY l.ver DESC LIMIT 1
            FOR UPDATE
        ) AS c
        LEFT JOIN LATERAL (SELECT e.next_off FROM queen.log_ends AS e WHERE e.part_id = c.part_id OFFSET 0) AS n ON true
    ) AS e;

    IF m_part IS NOT NULL THEN
        IF true = ANY(m_drained) THEN
            -- Under the lock nothing is pushed to them, so parking misses no push.
            SELECT array_agg(k.locked ORDER BY u.ord) INTO m_locked
            FROM unnest(m_part, m_drained) WITH ORDINALITY AS u (part_id, drained, ord)
            LEFT JOIN LATERAL (
                SELECT true AS locked FROM queen.partition_locks AS l
                WHERE l.part_id = u.part_id AND u.drained FOR NO KEY UPDATE OF l SKIP LOCKED
            ) AS k ON true;
        END IF;
        -- FULL: arrays look small to a planner, which would go through all cursors for each element. The condition
        -- keeps it so.
        RETURN QUERY
        WITH moved AS (
            UPDATE queen.partition_consumers AS c
            SET
                acked = u.last,
                lease = CASE WHEN u.last < u.upto THEN c.lease END,
                attempts = CASE WHEN u.last < c.seen THEN c.attempts ELSE 0 END,
                ready_at = CASE
                    WHEN u.last < u.upto THEN c.ready_at WHEN u.last = n.next_off - 1 THEN 'infinity' ELSE v_now
                END,
                ver = c.ver + 1
            FROM unnest(m_part, m_grp, m_ver, m_acked, m_last, m_upto, m_locked)
                AS u (part_id, grp_id, ver, acked, last, upto, locked)
            LEFT JOIN LATERAL (
                SELECT e.next_off FROM queen.log_ends AS e WHERE e.part_id = u.part_id AND u.locked OFFSET 0
            ) AS n ON true
            WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver
            RETURNING c.part_id, c.grp_id, u.acked, u.last, u.last = u.upto AS ended, c.ready_at < 'infinity' AS more
        )
        SELECT u.ord::int, NULL, u.first, c.acked, NULL::bigint[], c.last, NULL::bigint, c.ended, false, c.ended AND c.more
        FROM unnest(p_part, p_grp, p_first) WITH ORDINALITY AS u (part_id, grp_id, first, ord)
        FULL JOIN moved AS c ON c.part_id = u.part_id AND c.grp_id = u.grp_id
        WHERE CASE WHEN c.part_id IS NULL THEN false ELSE true END;
        GET DIAGNOSTICS v_answered = ROW_COUNT;
    END IF;

    IF v_answered < cardinality(p_part) THEN
        RETURN QUERY
        SELECT r.* FROM queen.ack_other_cursors(
            p_part, p_grp, p_lease, p_kind, p_first, p_last, p_error, p_final, v_now, m_part, m_grp, o_part, o_grp, o_ver) AS r;
    END IF;
END $$;
COMMENT ON FUNCTION queen.ack_messages_v1 IS 'Completes, fails, retries or dead-letters delivered messages of many cursors.';
