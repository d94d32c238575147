-- Finds the cursors that a pop call shall claim; pop_unified_batch_v1 says what the arguments mean. Nobody waits here: a cursor
-- that somebody else holds is passed over.

-- Pops of any partition of one group each, which want one partition under a lease, where no cursor has anything special: nearly
-- all there are. One statement, longest ready first. Not complete (and nothing is claimed) when a pop or cursor is of another
-- kind, or when it may be too much data.
CREATE OR REPLACE FUNCTION queen.claim_in_one(
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_part bigint[],
    p_bytes bigint, p_bytes_all bigint, p_now timestamptz
) RETURNS queen.claims
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_claims queen.claims;
    v_pops int[];            -- the pops, those of a group side by side
BEGIN
    v_claims.complete := cardinality(p_pop) = cardinality(p_batch) AND array_position(p_lease, NULL) IS NULL
        AND 1 = ALL(p_parts) AND 0 < ALL(p_batch) AND array_remove(p_part, NULL) = '{}';
    IF NOT v_claims.complete THEN
        RETURN v_claims;
    END IF;
    SELECT array_agg(e.pop ORDER BY e.grp_id, e.pop) INTO v_pops FROM unnest(p_pop, p_grp) AS e (pop, grp_id);
    SELECT
        coalesce(bool_and(u.plain AND s.last > u.acked AND s.bytes <= p_bytes) AND sum(s.bytes) <= p_bytes_all, true),
        array_agg(u.pop), array_agg(u.part_id), array_agg(u.grp_id), array_agg(u.ver), array_agg(u.acked),
        array_agg(least(s.last, u.acked + p_batch[u.pop])), array_agg(NULL::int8multirange), array_agg(u.seen),
        array_agg(u.attempts + 1),
        array_agg(p_now + make_interval(secs => coalesce(p_seconds[u.pop], nullif(u.lease_time, 0), 60)))
    INTO v_claims.complete, v_claims.pop, v_claims.part_id, v_claims.grp_id, v_claims.ver, v_claims.acked,
        v_claims.upto, v_claims.ahead, v_claims.seen, v_claims.attempt, v_claims.ready_at
    FROM (
        SELECT
            v_pops[w.before + row_number() OVER (PARTITION BY w.grp_id ORDER BY c.ready_at, c.part_id)] AS pop,
            w.grp_id, c.part_id, c.ver, c.acked, c.seen, c.attempts, q.lease_time,
            c.ahead IS NULL AND q.delayed_processing = 0 AND q.window_buffer = 0 AS plain
        FROM (
            SELECT
                e.grp_id, count(*) AS pops, sum(count(*)) OVER (ORDER BY e.grp_id) - count(*) AS before,
                queen.low_water(e.grp_id, p_now) AS low
            FROM unnest(p_grp) AS e (grp_id) GROUP BY e.grp_id
        ) AS w
        JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[w.grp_id])
        JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
        CROSS JOIN LATERAL (
            SELECT l.part_id, l.ver, l.acked, l.ahead, l.seen, l.attempts, l.ready_at
            FROM queen.partition_consumers AS l
            WHERE l.grp_id = w.grp_id AND l.ready_at BETWEEN w.low AND p_now AND l.ready_at < 'infinity'
            ORDER BY l.ready_at, l.part_id + 0 LIMIT w.pops
            FOR UPDATE SKIP LOCKED
        ) AS c
    ) AS u
    -- The segments of the run: up to the one in which a full batch ends.
    CROSS JOIN LATERAL (
        SELECT coalesce(max(l.last_off), -1) AS last, coalesce(sum(octet_length(l.data)), 0) AS bytes
        FROM queen.segments AS l
        WHERE l.part_id = u.part_id AND l.last_off > u.acked AND l.last_off <= coalesce((
            SELECT m.last_off FROM queen.segments AS m
            WHERE m.part_id = u.part_id AND m.last_off >= u.acked + p_batch[u.pop] ORDER BY m.last_off LIMIT 1
        ), 9223372036854775807)
    ) AS s;
    RETURN v_claims;
END $$;
COMMENT ON FUNCTION queen.claim_in_one IS 'Internal: the claims of pops that want one partition of one group each, in one statement.';

-- Locks cursors that are ready: of one partition, or of the group those that have been ready the longest.
CREATE OR REPLACE FUNCTION queen.lock_ready(p_grp bigint, p_part bigint, p_number int, p_now timestamptz)
RETURNS SETOF queen.partition_consumers
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_low timestamptz;
BEGIN
    IF p_part IS NULL THEN
        v_low := queen.low_water(p_grp, p_now);
        RETURN QUERY
        SELECT c.* FROM queen.partition_consumers AS c
        WHERE c.grp_id = p_grp AND c.ready_at BETWEEN v_low AND p_now AND c.ready_at < 'infinity'
        ORDER BY c.ready_at, c.part_id + 0 LIMIT p_number
        FOR UPDATE SKIP LOCKED;
    ELSE
        RETURN QUERY
        SELECT c.*
        FROM (
            SELECT l.ver, l.ready_at FROM queen.partition_consumers AS l
            WHERE l.part_id = p_part AND l.grp_id = p_grp ORDER BY l.ver DESC LIMIT 1
        ) AS newest
        JOIN queen.partition_consumers AS c ON c.part_id = p_part AND c.grp_id = p_grp AND c.ver = newest.ver
        WHERE newest.ready_at <= p_now
        FOR UPDATE OF c SKIP LOCKED;
    END IF;
END $$;
COMMENT ON FUNCTION queen.lock_ready IS 'Internal: locks cursors that are ready, and passes over those that somebody else holds.';

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
        ready_at = u.ready_at, ver = c.ver + 1
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
COMMENT ON FUNCTION queen.write_claims IS 'Internal: leases what a pop claims, or completes it.';

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
COMMENT ON FUNCTION queen.complete_deliveries IS 'Internal: completes what autoAck has delivered.';

-- What a pop does with cursors that it found with nothing to deliver: they wait until something becomes visible by itself, or
-- are parked. Under the delays that hold now: a configure that has been committed since they were read is not overruled, and
-- one that comes later waits for these cursors, which the caller holds. Returns how many no longer look ready.
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
COMMENT ON FUNCTION queen.rest IS 'Internal: puts off or parks cursors that a pop found with nothing to deliver.';

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
COMMENT ON FUNCTION queen.join_claims IS 'Internal: the claims of two rounds.';

-- Pops of all kinds, served in their order. A round locks as many ready cursors as the open pops may take, goes through them
-- once, and writes what it found: claims, and cursors with nothing to deliver, which are put off or parked. So a cursor is looked
-- at once per call, and the next round finds others.
CREATE OR REPLACE FUNCTION queen.claim_in_rounds(
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_part bigint[],
    p_bytes bigint, p_bytes_all bigint, p_now timestamptz
) RETURNS queen.claims
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_pops int[];            -- the pops, those that look at the same cursors side by side
    v_source int[];          -- of each of them, the number of what it looks at: groups, or a partition
    v_begin int[];           -- of each source, where its pops begin
    v_bytes bigint[] := array_fill(p_bytes, ARRAY[cardinality(p_batch)]);
    v_served bool[] := array_fill(false, ARRAY[cardinality(p_batch)]);
    v_all bigint := p_bytes_all;
    v_share int := 8;        -- partitions that a pop may take in a round
    v_round queen.claims;
    v_claims queen.claims;
    v_cursor record;
    v_run record;
    v_current int;
    v_next int;
    v_pop int;
    v_open int;              -- pops that have room
    v_used int;              -- cursors of this round that became claims, or were put off or parked
    v_put_away int;
    v_idle int := 0;
    v_more bool;             -- whether a source had as many cursors as were asked for
    c_pop int[];             -- claims and idle cursors of this round: one array per column
    c_part bigint[];
    c_grp bigint[];
    c_ver bigint[];
    c_acked bigint[];
    c_upto bigint[];
    c_ahead int8multirange[];
    c_seen bigint[];
    c_attempt int[];
    c_ready_at timestamptz[];
    i_part bigint[];
    i_grp bigint[];
    i_ver bigint[];
    i_again_at timestamptz[];
    i_delay int[];
    i_window int[];
BEGIN
    SELECT array_agg(u.pop ORDER BY u.source, u.pop), array_agg(u.source ORDER BY u.source, u.pop) INTO v_pops, v_source
    FROM (
        SELECT e.pop, dense_rank() OVER (ORDER BY min(e.part_id), array_agg(e.grp_id ORDER BY e.grp_id))::int AS source
        FROM unnest(p_pop, p_grp, p_part) AS e (pop, grp_id, part_id) GROUP BY e.pop
    ) AS u;
    SELECT array_agg(u.place ORDER BY u.source) INTO v_begin
    FROM (
        SELECT s.source, min(s.place)::int AS place FROM unnest(v_source) WITH ORDINALITY AS s (source, place) GROUP BY s.source
    ) AS u;
    SELECT count(*) INTO v_open FROM unnest(v_pops) AS u (pop) WHERE least(p_batch[u.pop], p_parts[u.pop]) > 0;
    WHILE v_open > 0 LOOP
        c_pop := '{}'; c_part := '{}'; c_grp := '{}'; c_ver := '{}'; c_acked := '{}'; c_upto := '{}'; c_ahead := '{}';
        c_seen := '{}'; c_attempt := '{}'; c_ready_at := '{}';
        i_part := '{}'; i_grp := '{}'; i_ver := '{}'; i_again_at := '{}'; i_delay := '{}'; i_window := '{}';
        v_current := NULL;
        v_more := false;
        FOR v_cursor IN
            SELECT
                w.source, c.*, q.lease_time, q.delayed_processing, q.window_buffer,
                l.part_id IS NULL AND count(*) OVER (PARTITION BY w.source, c.grp_id) >= w.wanted AS more,
                row_number() OVER (PARTITION BY c.part_id, c.grp_id ORDER BY w.source) AS sight
            FROM (
                SELECT o.source, least(sum(least(p_parts[o.pop], p_batch[o.pop], v_share)), 1000) AS wanted
                FROM unnest(v_pops, v_source) AS o (pop, source)
                WHERE p_parts[o.pop] > 0 AND p_batch[o.pop] > 0 AND v_bytes[o.pop] > 0
                GROUP BY o.source
            ) AS w
            JOIN (
                SELECT DISTINCT s.source, e.grp_id, e.part_id
                FROM unnest(p_pop, p_grp, p_part) AS e (pop, grp_id, part_id)
                JOIN unnest(v_pops, v_source) AS s (pop, source) ON s.pop = e.pop
            ) AS l ON l.source = w.source
            JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[l.grp_id])
            JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
            CROSS JOIN LATERAL queen.lock_ready(l.grp_id, l.part_id, w.wanted::int, p_now) AS c
            ORDER BY w.source, q.priority DESC, c.ready_at, c.part_id
        LOOP
            v_more := v_more OR v_cursor.more;
            IF v_current IS DISTINCT FROM v_cursor.source THEN
                v_current := v_cursor.source;
                v_next := v_begin[v_current];
            END IF;
            WHILE v_source[v_next] = v_current
                AND least(p_batch[v_pops[v_next]], p_parts[v_pops[v_next]], v_bytes[v_pops[v_next]]) <= 0 LOOP
                v_next := v_next + 1;
            END LOOP;
            -- No pop wants it, or it was seen a moment ago by pops that look at more than these.
            CONTINUE WHEN v_source[v_next] IS DISTINCT FROM v_current OR v_cursor.sight > 1;
            v_pop := v_pops[v_next];
            SELECT * INTO v_run FROM queen.next_run(
                v_cursor.part_id, v_cursor.acked, v_cursor.ahead, v_cursor.delayed_processing, v_cursor.window_buffer,
                p_batch[v_pop], least(v_bytes[v_pop], v_all), NOT v_served[v_pop] AND v_all > 0, p_now);
            IF v_run.messages > 0 THEN
                c_pop := c_pop || v_pop;
                c_part := c_part || v_cursor.part_id;
                c_grp := c_grp || v_cursor.grp_id;
                c_ver := c_ver || v_cursor.ver;
                c_acked := c_acked || v_cursor.acked;
                c_upto := c_upto || v_run.upto;
                c_ahead := c_ahead || v_cursor.ahead;
                c_seen := c_seen || v_cursor.seen;
                c_attempt := c_attempt || v_cursor.attempts + 1;
                c_ready_at := c_ready_at
                    || p_now + make_interval(secs => coalesce(p_seconds[v_pop], nullif(v_cursor.lease_time, 0), 60));
                p_batch[v_pop] := p_batch[v_pop] - v_run.messages;
                p_parts[v_pop] := p_parts[v_pop] - 1;
                v_bytes[v_pop] := v_bytes[v_pop] - v_run.bytes;
                v_all := v_all - v_run.bytes;
                v_served[v_pop] := true;
            ELSIF NOT v_run.full_up THEN
                i_part := i_part || v_cursor.part_id;
                i_grp := i_grp || v_cursor.grp_id;
                i_ver := i_ver || v_cursor.ver;
                i_again_at := i_again_at || v_run.again_at;
                i_delay := i_delay || v_cursor.delayed_processing;
                i_window := i_window || v_cursor.window_buffer;
            END IF;
            IF v_run.full_up THEN
                v_bytes[v_pop] := 0;
            END IF;
            IF least(p_batch[v_pop], p_parts[v_pop], v_bytes[v_pop]) <= 0 THEN
                v_open := v_open - 1;
            END IF;
        END LOOP;
        v_round.pop := c_pop;
        v_round.part_id := c_part;
        v_round.grp_id := c_grp;
        v_round.ver := c_ver;
        v_round.acked := c_acked;
        v_round.upto := c_upto;
        v_round.ahead := c_ahead;
        v_round.seen := c_seen;
        v_round.attempt := c_attempt;
        v_round.ready_at := c_ready_at;
        PERFORM queen.write_claims(v_round, p_lease, p_now);
        v_claims := queen.join_claims(v_claims, v_round);
        v_used := cardinality(c_pop);
        IF i_part <> '{}' THEN
            v_idle := v_idle + cardinality(i_part);
            v_put_away := queen.rest(i_part, i_grp, i_ver, i_again_at, i_delay, i_window, p_now);
            v_used := v_used + v_put_away;
            IF v_put_away < cardinality(i_part) THEN
                v_claims.unparked := v_claims.unparked || i_part;
            END IF;
        END IF;
        v_claims.cut_short := v_all <= 0 OR (v_more AND v_idle >= 1000);
        EXIT WHEN v_used = 0 OR NOT v_more OR v_claims.cut_short;
        v_share := least(v_share * 8, 1000);
    END LOOP;
    RETURN v_claims;
END $$;
COMMENT ON FUNCTION queen.claim_in_rounds IS 'Internal: the claims of pops of all kinds, written, as are the cursors found with nothing to deliver.';
