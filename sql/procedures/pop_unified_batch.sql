-- Purpose:   serves many pops in one call: claims cursors, leases them and returns the segments that hold their
--            messages.
-- Arguments: by pop, in the order in which they are served:
--              p_batch    most messages
--              p_parts    most partitions
--              p_lease    lease id to give; null completes what is delivered (autoAck)
--              p_seconds  length of the lease, or null for the queue's
--            by group that a pop looks at (several for a pop over many queues):
--              p_pop      number of the pop, from 1
--              p_grp      the consumer group of a queue
--              p_part     the partition to pop, or null for any
--            p_bytes, p_bytes_all   data that one pop, and the call, may return; each pop gets one message at least, until the
--                       call has none left
--            by group:
--              p_marked   its number
--              p_mark     its low-water mark as an earlier call returned it (queen.low_water), or null
-- Returns:   one row per segment of a claim: pop, grp_id, part_id; first_off and upto of the run; skip (offsets of this
--            segment that are done already); seen (offsets up to it were delivered before, and their attempt is
--            `attempt`); and of the segment: off, the offset of the first message returned, created_at, the ends of the
--            messages returned, and data from byte `start` on (the whole, or the part with these messages). For a group
--            that could not serve all its pops one row with pop null, grp_id, part_id as asked, and ready_in: the
--            seconds until a cursor there becomes ready by itself (infinity: not before a push, or before a paused one is resumed; null: no such group or
--            partition; 0 or less: one is ready, but locked; -infinity: the call has stopped at one of its limits, and
--            another finds more), and attempt: 1 if a worker may be about to release what it prefetched, else 0. For
--            each of p_marked whose mark has changed one row with pop null, grp_id and mark.
-- Locks:     cursors, then partitions, both with SKIP LOCKED: a pop never waits for a lock.
-- Writes:    partition_consumers.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION queen.pop_unified_batch_v1(
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_part bigint[],
    p_bytes bigint, p_bytes_all bigint, p_marked bigint[] DEFAULT '{}', p_mark text[] DEFAULT '{}'
) RETURNS TABLE (
    pop int, grp_id bigint, part_id bigint, first_off bigint, upto bigint, skip bigint[], seen bigint, attempt int,
    ready_in float8, off bigint, created_at timestamptz, ends bytea, start int, data bytea, mark text
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.write_clock();
    v_complete bool;
    v_claims queen.claims;
BEGIN
    FOR i IN 1..cardinality(p_marked) LOOP
        IF p_mark[i] IS NOT NULL THEN
            PERFORM set_config(queen.name_of_mark(p_marked[i]), p_mark[i], false);
            PERFORM queen.take_back_passed(p_marked[i], v_now) WHERE split_part(p_mark[i], ' ', 11) <> '';
        END IF;
    END LOOP;
    v_claims := queen.claim_in_one(
        p_batch, p_parts, p_lease, p_seconds, p_pop, p_grp, p_part, p_bytes, p_bytes_all, v_now);
    v_complete := v_claims.complete;
    IF v_complete THEN
        PERFORM queen.write_claims(v_claims, p_lease, v_now);
    ELSE
        v_claims := queen.claim_in_rounds(
            p_batch, p_parts, p_lease, p_seconds, p_pop, p_grp, p_part, p_bytes, p_bytes_all, v_now);
    END IF;

    IF NOT v_complete OR (SELECT count(DISTINCT e.pop) FROM unnest(v_claims.pop) AS e (pop)) < cardinality(p_batch) THEN
        RETURN QUERY
        SELECT NULL::int, u.grp_id, u.part_id, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint,
            queen.was_prefetched(u.grp_id, u.part_id, v_now)::int,
            CASE
                WHEN g.id IS NULL OR (u.part_id IS NOT NULL AND c.ready_at IS NULL) THEN NULL
                WHEN g.paused OR q.paused THEN 'infinity'
                WHEN v_claims.cut_short THEN '-infinity'
                WHEN c.ready_at < 'infinity' THEN extract(epoch FROM c.ready_at - v_now)::float8
                ELSE 'infinity'
            END,
            NULL::bigint, NULL::timestamptz, NULL::bytea, NULL::int, NULL::bytea, NULL
        FROM queen.unserved(p_pop, p_grp, p_part, v_claims.pop) AS u
        LEFT JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[u.grp_id])
        LEFT JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
        CROSS JOIN LATERAL queen.next_ready(u.grp_id, u.part_id, v_claims.unparked, v_now) AS c (ready_at);
    END IF;

    RETURN QUERY
    SELECT
        u.pop, u.grp_id, u.part_id, u.acked + 1, u.upto,
        CASE WHEN u.ahead IS NOT NULL
            THEN ARRAY(SELECT o FROM generate_series(s.first_off + s.lo, s.first_off + s.hi) AS o WHERE u.ahead @> o)
        END,
        u.seen, u.attempt, NULL::float8, s.first_off + s.lo, s.created_at,
        CASE WHEN s.lo > 0 THEN substr(e.part, 5) ELSE e.part END, b.start,
        CASE WHEN s.lo = 0 AND s.hi = s.n - 1 THEN s.data
            ELSE substr(s.data, b.start + 1, queen.message_end(e.part, octet_length(e.part) / 4 - 1) - b.start) END,
        NULL
    FROM unnest(
        v_claims.pop, v_claims.grp_id, v_claims.part_id, v_claims.acked, v_claims.upto, v_claims.ahead, v_claims.seen,
        v_claims.attempt
    ) AS u (pop, grp_id, part_id, acked, upto, ahead, seen, attempt)
    CROSS JOIN LATERAL (
        SELECT
            l.last_off - l.n + 1 AS first_off, l.created_at, l.n, l.ends, l.data,
            greatest(u.acked + 1 - (l.last_off - l.n + 1), 0)::int AS lo,
            (least(u.upto, l.last_off) - (l.last_off - l.n + 1))::int AS hi
        FROM queen.segments AS l
        WHERE l.part_id = u.part_id AND l.last_off > u.acked AND l.n > 0 AND l.last_off <= (
            SELECT m.last_off FROM queen.segments AS m
            WHERE m.part_id = u.part_id AND m.last_off >= u.upto ORDER BY m.last_off LIMIT 1
        )
        ORDER BY l.last_off OFFSET 0
    ) AS s
    -- The part of ends that is needed, fetched once (OFFSET 0): its columns may be stored out of line.
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.lo = 0 AND s.hi = s.n - 1 THEN s.ends
            ELSE substr(s.ends, 4 * greatest(s.lo - 1, 0) + 1, 4 * (s.hi - greatest(s.lo - 1, 0) + 1)) END AS part
        OFFSET 0
    ) AS e
    CROSS JOIN LATERAL (
        SELECT CASE WHEN s.lo > 0 THEN queen.message_end(e.part, 0) ELSE 0 END AS start OFFSET 0
    ) AS b
    -- Not a segment whose messages are all done already.
    WHERE u.ahead IS NULL OR NOT u.ahead @> int8range(s.first_off + s.lo, s.first_off + s.hi, '[]');

    FOR i IN 1..cardinality(p_marked) LOOP
        mark := nullif(current_setting(queen.name_of_mark(p_marked[i]), true), '');
        IF mark IS DISTINCT FROM p_mark[i] THEN
            grp_id := p_marked[i];
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.pop_unified_batch_v1 IS
    'Claims cursors for many pops, oldest ready first, and returns the segments with their messages.';

-- The groups and partitions that pops without a result had asked for, each once.
CREATE OR REPLACE FUNCTION queen.unserved(p_pop int[], p_grp bigint[], p_part bigint[], p_served int[])
RETURNS TABLE (grp_id bigint, part_id bigint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT DISTINCT e.grp_id, e.part_id
    FROM unnest(p_pop, p_grp, p_part) AS e (pop, grp_id, part_id)
    LEFT JOIN unnest(p_served) AS s (pop) ON s.pop = e.pop
    WHERE s.pop IS NULL;
END $$;
COMMENT ON FUNCTION queen.unserved IS 'Internal: the requests of pops that got nothing.';
