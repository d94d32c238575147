-- Finds the cursors that a pop call claims; pop_unified_batch_v1 says what the arguments mean. It skips cursors that
-- others have locked. ADR 38 says why = ANY(ARRAY[x]) and part_id + 0.

-- The claims of common pops, in one statement, longest ready first. A pop has a slot per partition that it may take;
-- the cursors of a group go to the slots of its pops in order. If it is not complete, the caller must ignore the
-- arrays. The cursors that it found stay locked until the commit, and claim_in_rounds takes them. Not served here:
--   pops with autoAck (no lease), of a named partition, of several groups, of more than 32 partitions;
--   cursors with out-of-order acks (ahead), a delay, or nothing to deliver; too much data;
--   a pop that was full before its slots were, if another pop of its group may have room.
-- Why at most 32: each slot locks a cursor, also one that is not needed, and other calls skip it.
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
    v_slots int[];           -- the pop of each slot, those of a group side by side
BEGIN
    v_claims.complete := cardinality(p_pop) = cardinality(p_batch) AND array_position(p_lease, NULL) IS NULL
        AND 0 < ALL(p_parts) AND 32 >= ALL(p_parts) AND 0 < ALL(p_batch) AND array_remove(p_part, NULL) = '{}';
    IF NOT v_claims.complete THEN
        RETURN v_claims;
    END IF;
    -- As many groups as pops: but that may be two groups of one pop, and none of another.
    SELECT array_agg(e.pop ORDER BY e.grp_id, e.pop), count(DISTINCT e.pop) = cardinality(p_pop)
    INTO v_slots, v_claims.complete
    FROM unnest(p_pop, p_grp) AS e (pop, grp_id)
    CROSS JOIN LATERAL generate_series(1, least(p_parts[e.pop], p_batch[e.pop]));
    IF NOT v_claims.complete THEN
        RETURN v_claims;
    END IF;
    SELECT
        coalesce(
            bool_and(t.plain AND t.last > t.acked AND (t.taken OR t.pops = 1) AND t.bytes_of_pop <= p_bytes)
            AND sum(t.bytes) <= p_bytes_all, true),
        array_agg(t.pop) FILTER (WHERE t.taken), array_agg(t.part_id) FILTER (WHERE t.taken),
        array_agg(t.grp_id) FILTER (WHERE t.taken), array_agg(t.ver) FILTER (WHERE t.taken),
        array_agg(t.acked) FILTER (WHERE t.taken),
        array_agg(least(t.last, t.acked + p_batch[t.pop] - t.messages_before)) FILTER (WHERE t.taken),
        array_agg(NULL::int8multirange) FILTER (WHERE t.taken), array_agg(t.seen) FILTER (WHERE t.taken),
        array_agg(t.attempts + 1) FILTER (WHERE t.taken),
        array_agg(p_now + make_interval(secs => coalesce(p_seconds[t.pop], nullif(t.lease_time, 0), 60)))
            FILTER (WHERE t.taken)
    INTO v_claims.complete, v_claims.pop, v_claims.part_id, v_claims.grp_id, v_claims.ver, v_claims.acked,
        v_claims.upto, v_claims.ahead, v_claims.seen, v_claims.attempt, v_claims.ready_at
    FROM (
        SELECT
            u.*, s.last, s.bytes, sum(s.bytes) OVER so_far AS bytes_of_pop,
            (sum(s.last - u.acked) OVER so_far)::bigint - (s.last - u.acked) AS messages_before,
            sum(s.last - u.acked) OVER so_far - (s.last - u.acked) < p_batch[u.pop] AS taken
        FROM (
            SELECT
                v_slots[w.slots_before + row_number() OVER (PARTITION BY w.grp_id ORDER BY c.ready_at, c.part_id)] AS pop,
                w.grp_id, w.pops, c.part_id, c.ver, c.acked, c.seen, c.attempts, c.ready_at, q.lease_time,
                c.ahead IS NULL AND q.delayed_processing = 0 AND q.window_buffer = 0 AS plain
            FROM (
                SELECT
                    e.grp_id, count(*) AS pops, sum(least(p_parts[e.pop], p_batch[e.pop])) AS slots,
                    sum(sum(least(p_parts[e.pop], p_batch[e.pop]))) OVER (ORDER BY e.grp_id)
                    - sum(least(p_parts[e.pop], p_batch[e.pop])) AS slots_before,
                    queen.low_water(e.grp_id, p_now) AS low
                FROM unnest(p_pop, p_grp) AS e (pop, grp_id) GROUP BY e.grp_id
            ) AS w
            JOIN queen.consumer_groups_metadata AS g ON g.id = ANY(ARRAY[w.grp_id])
            JOIN queen.queues AS q ON q.id = ANY(ARRAY[g.queue_id])
            CROSS JOIN LATERAL (
                SELECT l.part_id, l.ver, l.acked, l.ahead, l.seen, l.attempts, l.ready_at
                FROM queen.partition_consumers AS l
                WHERE l.grp_id = w.grp_id AND l.ready_at BETWEEN w.low AND p_now AND l.ready_at < 'infinity'
                    AND NOT (g.paused OR q.paused)
                ORDER BY l.ready_at, l.part_id + 0 LIMIT w.slots
                FOR UPDATE SKIP LOCKED
            ) AS c
        ) AS u
        -- The segments of the run: up to the one in which a full batch ends. No segment here has n = 0, because no
        -- cursor is below such a segment.
        CROSS JOIN LATERAL (
            SELECT coalesce(max(l.last_off), -1) AS last, coalesce(sum(octet_length(l.data)), 0) AS bytes
            FROM queen.segments AS l
            WHERE l.part_id = u.part_id AND l.last_off > u.acked AND l.last_off <= coalesce((
                SELECT m.last_off FROM queen.segments AS m
                WHERE m.part_id = u.part_id AND m.last_off >= u.acked + p_batch[u.pop] ORDER BY m.last_off LIMIT 1
            ), 9223372036854775807)
        ) AS s
        WINDOW so_far AS (PARTITION BY u.pop ORDER BY u.ready_at, u.part_id ROWS UNBOUNDED PRECEDING)
    ) AS t;
    RETURN v_claims;
END $$;
COMMENT ON FUNCTION queen.claim_in_one IS 'Internal: the claims of pops of one group each, in one statement.';

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
COMMENT ON FUNCTION queen.lock_ready IS
    'Internal: locks cursors that are ready, and skips those that others have locked.';

-- Serves pops of all kinds, in their order. A round locks as many ready cursors as the open pops may take, writes their
-- claims, and postpones or parks cursors with nothing to deliver. So the next round finds others.
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
    v_used int;              -- cursors that became claims, or were postponed or parked
    v_put_away int;
    v_idle int := 0;
    v_more bool;             -- whether a source had as many cursors as were asked for
    c_pop int[];             -- claims and idle cursors of this round
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
            CROSS JOIN LATERAL (
                SELECT r.* FROM queen.lock_ready(l.grp_id, l.part_id, w.wanted::int, p_now) AS r
                WHERE NOT (g.paused OR q.paused) OFFSET 0  -- before anything is locked
            ) AS c
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
            -- No pop wants it, or it was just found for pops that look at more than one group.
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
COMMENT ON FUNCTION queen.claim_in_rounds IS
    'Internal: the claims of pops of all types, written; cursors with nothing to deliver are postponed or parked.';
