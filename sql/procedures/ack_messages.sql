-- Purpose:   completes, fails, retries or dead-letters delivered messages of many cursors.
-- Arguments: one element a message or, for completed ones, a run of messages:
--            p_part, p_grp   the cursor        p_lease  lease named by the client, or null
--            p_kind          c completed, f failed, r retry, d dead letter
--            p_first, p_last offsets, or null where p_hash names the message by its transaction id (queen.transaction_hash)
--            p_alone         whether the element is the only one for its cursor
--            p_error         text for a dead letter, or null
--            p_final         f means d, and what is done already is refused (transactions)
-- Returns:   one row an element: ord from 1, problem (null: accepted), first_off, done_upto and also_done (what was done
--            before the call: up to it, and these), within (offsets above it were refused; null: no bound), released: the
--            lease ended, dead: a dead letter was written, ready: the lease ended and more is to be delivered.
-- Locks:     cursors in (part_id, grp_id) order, then heads with SKIP LOCKED.
-- Writes:    partition_consumers, partition_lookup (parked), dead_letter_queue.
CREATE OR REPLACE FUNCTION queen.ack_messages_v1(
    p_part bigint[], p_grp bigint[], p_lease uuid[], p_kind text[], p_first bigint[], p_last bigint[],
    p_hash uuid[], p_alone bool[], p_error text[], p_final bool
) RETURNS TABLE (
    ord int, problem text, first_off bigint, done_upto bigint, also_done bigint[], within bigint, released bool,
    dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_element record;
    v_heads bigint[];
    v_drained int[];
    v_rest int[] := '{}';
    f_ord int[] := '{}';      -- elements that move their cursor by their own: one array a column
    f_part bigint[] := '{}';
    f_grp bigint[] := '{}';
    f_first bigint[] := '{}';
    f_last bigint[] := '{}';
    f_acked bigint[] := '{}';
    f_upto bigint[] := '{}';
BEGIN
    FOR v_element IN
        SELECT u.ord, u.part_id, u.grp_id, u.kind, u.first, u.last, u.alone, c.acked, c.upto,
            c.lease = u.lease AND c.ready_at > v_now AND c.ahead IS NULL AND c.retries IS NULL AS plain
        FROM unnest(p_part, p_grp, p_lease, p_kind, p_first, p_last, p_alone)
            WITH ORDINALITY AS u (part_id, grp_id, lease, kind, first, last, alone, ord)
        JOIN queen.partition_consumers AS c ON c.part_id = u.part_id AND c.grp_id = u.grp_id
        ORDER BY c.part_id, c.grp_id
        FOR UPDATE OF c
    LOOP
        IF v_element.plain AND v_element.alone AND v_element.kind = 'c' AND v_element.last > v_element.acked
            AND v_element.first <= v_element.acked + 1 AND v_element.last <= v_element.upto
            AND (v_element.first > v_element.acked OR NOT p_final) THEN
            f_ord := f_ord || v_element.ord::int;
            f_part := f_part || v_element.part_id;
            f_grp := f_grp || v_element.grp_id;
            f_first := f_first || v_element.first;
            f_last := f_last || v_element.last;
            f_acked := f_acked || v_element.acked;
            f_upto := f_upto || v_element.upto;
        ELSE
            v_rest := v_rest || v_element.ord::int;
        END IF;
    END LOOP;

    IF f_ord <> '{}' THEN
        -- Drained heads: under the lock next_off cannot move, so that parking loses no push.
        SELECT array_agg(h.part_id), array_agg(h.ord) INTO v_heads, v_drained
        FROM (
            SELECT l.part_id, u.ord FROM unnest(f_ord, f_part, f_last) AS u (ord, part_id, last)
            JOIN queen.partition_lookup AS l ON l.part_id = u.part_id AND l.next_off = u.last + 1
            ORDER BY l.part_id FOR UPDATE OF l SKIP LOCKED
        ) AS h;
        UPDATE queen.partition_consumers AS c
        SET
            acked = u.last,
            lease = CASE WHEN u.last < u.upto THEN c.lease END,
            attempts = CASE WHEN u.last < c.seen THEN c.attempts ELSE 0 END,
            ready_at = CASE
                WHEN u.last < u.upto THEN c.ready_at WHEN u.ord = ANY(v_drained) THEN 'infinity' ELSE v_now
            END
        FROM unnest(f_ord, f_part, f_grp, f_last, f_upto) AS u (ord, part_id, grp_id, last, upto)
        WHERE c.part_id = u.part_id AND c.grp_id = u.grp_id;
        UPDATE queen.partition_lookup AS l SET parked = true WHERE l.part_id = ANY(v_heads) AND NOT l.parked;
        RETURN QUERY
        SELECT u.ord, NULL, u.first, u.acked, NULL::bigint[], u.last, u.last = u.upto, false,
            u.last = u.upto AND (v_drained IS NULL OR u.ord <> ALL(v_drained))
        FROM unnest(f_ord, f_first, f_last, f_acked, f_upto) AS u (ord, first, last, acked, upto);
    END IF;

    IF cardinality(f_ord) < cardinality(p_part) THEN
        RETURN QUERY
        WITH element AS (
            SELECT u.ord::int AS ord, u.part_id, u.grp_id, u.lease, u.kind, u.error,
                coalesce(u.first, t.off) AS first, coalesce(u.last, t.off) AS last
            FROM unnest(p_part, p_grp, p_lease, p_kind, p_first, p_last, p_hash, p_error)
                WITH ORDINALITY AS u (part_id, grp_id, lease, kind, first, last, hash, error, ord)
            LEFT JOIN queen.transaction_ids AS t ON u.first IS NULL AND t.part_id = u.part_id AND t.hash = u.hash
            WHERE u.ord <> ALL(f_ord)
        ), known AS (
            SELECT e.part_id, e.grp_id, array_agg(e.ord) AS ord, array_agg(e.lease) AS lease, array_agg(e.kind) AS kind,
                array_agg(e.first) AS first, array_agg(e.last) AS last, array_agg(e.error) AS error
            FROM element AS e WHERE e.ord = ANY(v_rest) AND e.first IS NOT NULL
            GROUP BY e.part_id, e.grp_id
        ), acked AS (
            SELECT r.* FROM known AS k
            CROSS JOIN LATERAL queen.ack_cursor(
                k.part_id, k.grp_id, v_now, p_final, k.ord, k.lease, k.kind, k.first, k.last, k.error) AS r
        )
        SELECT e.ord, CASE WHEN a.ord IS NULL THEN 'Message not found' ELSE a.problem END,
            e.first, a.done_upto, a.also_done, a.within, coalesce(a.released, false), coalesce(a.dead, false),
            coalesce(a.ready, false)
        FROM element AS e LEFT JOIN acked AS a ON a.ord = e.ord;
    END IF;
END $$;
COMMENT ON FUNCTION queen.ack_messages_v1 IS 'Completes, fails, retries or dead-letters delivered messages of many cursors.';
