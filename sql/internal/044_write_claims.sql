-- What a pop does with the cursors that it has found and locked: it leases or completes, postpones or parks them.
-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- Writes claims. autoAck, which has no lease, completes what is delivered at once.
CREATE OR REPLACE FUNCTION queen.write_claims(p_claims queen.claims, p_lease uuid[], p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF coalesce(cardinality(p_claims.pop), 0) = 0 THEN
        RETURN;
    END IF;
    UPDATE queen.partition_consumers AS c
    SET
        lease = p_lease[u.pop], upto = u.upto, seen = greatest(c.seen, u.upto), seen_before = c.seen, attempts = u.attempt,
        ready_at = u.ready_at, ver = c.ver + 1,
        prefetched_until = CASE WHEN c.prefetched_until > p_now THEN c.prefetched_until END
    FROM unnest(
        p_claims.pop, p_claims.part_id, p_claims.grp_id, p_claims.ver, p_claims.upto, p_claims.attempt, p_claims.ready_at
    ) AS u (pop, part_id, grp_id, ver, upto, attempt, ready_at)
    WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver;
    IF array_position(p_lease, NULL) IS NOT NULL THEN
        PERFORM queen.complete_deliveries(array_agg(u.part_id), array_agg(u.grp_id), array_agg(u.ver + 1), p_now)
        FROM unnest(p_claims.pop, p_claims.part_id, p_claims.grp_id, p_claims.ver) AS u (pop, part_id, grp_id, ver)
        WHERE p_lease[u.pop] IS NULL;
    END IF;
END $$;
COMMENT ON FUNCTION queen.write_claims IS 'Internal: leases the messages that a pop claims, or completes them.';

CREATE OR REPLACE FUNCTION queen.complete_deliveries(p_part bigint[], p_grp bigint[], p_ver bigint[], p_now timestamptz)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE queen.partition_consumers AS c
    SET
        acked = l.acked, ahead = l.ahead, lease = NULL, ready_at = p_now,
        attempts = CASE WHEN l.acked >= c.seen THEN 0 ELSE c.attempts END,
        retries = queen.open_retries(c.retries, l.acked, l.ahead), ver = c.ver + 1
    FROM unnest(p_part, p_grp, p_ver) AS u (part_id, grp_id, ver)
    CROSS JOIN LATERAL (
        SELECT k.ctid AS tid, a.acked, a.ahead
        FROM queen.partition_consumers AS k CROSS JOIN LATERAL queen.advance(k.upto, k.ahead) AS a
        WHERE k.part_id = u.part_id AND k.grp_id = u.grp_id AND k.ver = u.ver
        OFFSET 0
    ) AS l
    WHERE c.ctid = l.tid;
    PERFORM queen.park(p_part, p_grp, (SELECT array_agg(u.ver + 1 ORDER BY u.ord) FROM unnest(p_ver) WITH ORDINALITY AS u (ver, ord)));
END $$;
COMMENT ON FUNCTION queen.complete_deliveries IS 'Internal: completes messages delivered with autoAck.';

-- Postpones cursors with nothing to deliver until something becomes visible by itself, or parks them. It uses the
-- delays that are configured now, not those that the caller has read earlier. A later configure waits for these
-- cursors, which the caller has locked. Returns how many cursors no longer look ready.
CREATE OR REPLACE FUNCTION queen.rest(
    p_part bigint[], p_grp bigint[], p_ver bigint[], p_again_at timestamptz[], p_delay int[], p_window int[],
    p_now timestamptz
) RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_waiting int;
    v_parked bigint[];
BEGIN
    UPDATE queen.partition_consumers AS c
    SET
        lease = NULL, ver = c.ver + 1,
        ready_at = CASE WHEN q.delayed_processing = u.delay AND q.window_buffer = u.window_buffer THEN u.again_at ELSE p_now END
    FROM unnest(p_part, p_grp, p_ver, p_again_at, p_delay, p_window)
        AS u (part_id, grp_id, ver, again_at, delay, window_buffer)
    JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[u.grp_id])
    JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
    WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver
        AND u.again_at IS NOT NULL;
    GET DIAGNOSTICS v_waiting = ROW_COUNT;
    IF v_waiting < cardinality(p_part) THEN
        SELECT queen.park(array_agg(u.part_id), array_agg(u.grp_id), array_agg(u.ver)) INTO v_parked
        FROM unnest(p_part, p_grp, p_ver, p_again_at) AS u (part_id, grp_id, ver, again_at)
        WHERE u.again_at IS NULL;
    END IF;
    RETURN v_waiting + coalesce(cardinality(v_parked), 0);
END $$;
COMMENT ON FUNCTION queen.rest IS 'Internal: postpones or parks cursors for which a pop found nothing to deliver.';

CREATE OR REPLACE FUNCTION queen.join_claims(p_one queen.claims, p_other queen.claims) RETURNS queen.claims
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    p_one.pop := p_one.pop || p_other.pop;
    p_one.part_id := p_one.part_id || p_other.part_id;
    p_one.grp_id := p_one.grp_id || p_other.grp_id;
    p_one.acked := p_one.acked || p_other.acked;
    p_one.upto := p_one.upto || p_other.upto;
    p_one.ahead := p_one.ahead || p_other.ahead;
    p_one.seen := p_one.seen || p_other.seen;
    p_one.attempt := p_one.attempt || p_other.attempt;
    RETURN p_one;
END $$;
COMMENT ON FUNCTION queen.join_claims IS 'Internal: combines the claims of two rounds.';
