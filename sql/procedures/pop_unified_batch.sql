-- Purpose:   serves many pops in one call: claims cursors, leases them and returns the segments that hold their messages.
-- Arguments: by pop, in the order in which they are served:
--              p_batch    most messages
--              p_parts    most partitions
--              p_lease    lease id to give; null completes what is delivered (autoAck)
--              p_seconds  length of the lease, or null for the queue's
--            by group that a pop looks at (several for a pop over many queues):
--              p_pop      number of the pop, from 1
--              p_grp      the consumer group of a queue
--              p_part     the partition to pop, or null for any
-- Returns:   one row a segment of a claim: pop, grp_id, part_id; first_off and upto of the run; skip (offsets in it that
--            are done already); seen (offsets up to it were delivered before, and their attempt is `attempt`);
--            and of the segment: off, the offset of the first message returned, created_at, the ends of the messages
--            returned, and data from byte `start` on (the whole, or the part with these messages).
--            For a group that could not serve all its pops one row with pop null, grp_id, part_id as asked, and
--            ready_in: the seconds until a cursor there becomes ready by itself (infinity: not before a push; null: no
--            such group; 0 or less: one is ready, but somebody else holds it).
-- Locks:     named cursors in (part_id, grp_id) order, then free ones with SKIP LOCKED, then heads with SKIP LOCKED.
-- Writes:    partition_consumers, partition_lookup (parked).
CREATE OR REPLACE FUNCTION queen.pop_unified_batch_v1(
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_part bigint[]
) RETURNS TABLE (
    pop int, grp_id bigint, part_id bigint, first_off bigint, upto bigint, skip bigint[], seen bigint, attempt int,
    ready_in float8, off bigint, created_at timestamptz, ends bytea, start int, data bytea
)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_place record;
    v_cursor record;
    v_page refcursor;
    v_rows int;
    v_wanted int;
    v_next int;               -- the pop to serve next, as a place in v_place.pops
    v_pop int;
    v_looked bigint[];       -- partitions that a page of this place has shown, so that the next page leaves them out
    v_visible bigint;
    v_again_at timestamptz;
    v_upto bigint;
    v_messages int;
    -- Claims, and cursors found with nothing to deliver (until when, or null to park them): one array a column.
    c_pop int[] := '{}';
    c_part bigint[] := '{}';
    c_grp bigint[] := '{}';
    c_acked bigint[] := '{}';
    c_upto bigint[] := '{}';
    c_ahead int8multirange[] := '{}';
    c_seen bigint[] := '{}';
    c_attempt int[] := '{}';
    c_ready timestamptz[] := '{}';
    i_part bigint[] := '{}';
    i_grp bigint[] := '{}';
    i_again_at timestamptz[] := '{}';
    i_delay int[] := '{}';
    i_pause int[] := '{}';
BEGIN
    -- A place is what pops look at: one partition, or all of one or several groups.
    FOR v_place IN
        SELECT u.part_id, u.groups, array_agg(u.pop ORDER BY u.pop) AS pops
        FROM (
            SELECT e.pop, e.part_id, array_agg(e.grp_id ORDER BY e.grp_id) AS groups
            FROM unnest(p_pop, p_grp, p_part) AS e (pop, grp_id, part_id)
            GROUP BY e.pop, e.part_id
        ) AS u
        GROUP BY u.part_id, u.groups
        ORDER BY u.part_id NULLS LAST, CASE WHEN u.part_id IS NOT NULL THEN u.groups[1] END, min(u.pop)
    LOOP
        v_next := 1;
        v_looked := '{}';
        LOOP
            WHILE v_next <= cardinality(v_place.pops)
                AND least(p_batch[v_place.pops[v_next]], p_parts[v_place.pops[v_next]]) <= 0 LOOP
                v_next := v_next + 1;
            END LOOP;
            EXIT WHEN v_next > cardinality(v_place.pops);
            IF v_place.part_id IS NOT NULL THEN
                v_wanted := 1;
                OPEN v_page FOR
                    SELECT c.*, h.next_off, h.last_at, q.lease_time, q.delayed_processing, q.window_buffer
                    FROM (
                        SELECT l.grp_id, l.part_id, l.acked, l.ahead, l.seen, l.attempts
                        FROM queen.partition_consumers AS l
                        WHERE l.part_id = v_place.part_id AND l.grp_id = v_place.groups[1] AND l.ready_at <= v_now
                            AND l.part_id <> ALL(v_looked)
                        FOR UPDATE
                    ) AS c
                    CROSS JOIN LATERAL (
                        SELECT l.next_off, l.last_at FROM queen.partition_lookup AS l WHERE l.part_id = c.part_id OFFSET 0
                    ) AS h
                    JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
                    JOIN queen.queues AS q ON q.id = g.queue_id;
            ELSE
                SELECT least(sum(p_parts[u.pop]), 1000) INTO v_wanted FROM unnest(v_place.pops[v_next:]) AS u (pop);
                OPEN v_page FOR
                    SELECT c.*, h.next_off, h.last_at, q.lease_time, q.delayed_processing, q.window_buffer
                    FROM queen.consumer_groups_metadata AS g
                    JOIN queen.queues AS q ON q.id = g.queue_id
                    CROSS JOIN LATERAL (
                        SELECT l.grp_id, l.part_id, l.acked, l.ahead, l.seen, l.attempts, l.ready_at
                        FROM queen.partition_consumers AS l
                        WHERE l.grp_id = g.id AND l.ready_at <= v_now AND l.part_id <> ALL(v_looked)
                        ORDER BY l.ready_at, l.part_id LIMIT v_wanted
                        FOR UPDATE SKIP LOCKED
                    ) AS c
                    CROSS JOIN LATERAL (
                        SELECT l.next_off, l.last_at FROM queen.partition_lookup AS l WHERE l.part_id = c.part_id OFFSET 0
                    ) AS h
                    WHERE g.id = ANY(v_place.groups)
                    ORDER BY q.priority DESC, c.ready_at, c.part_id;
            END IF;
            v_rows := 0;
            LOOP
                FETCH v_page INTO v_cursor;
                EXIT WHEN NOT FOUND OR v_next > cardinality(v_place.pops);
                v_rows := v_rows + 1;
                v_looked := v_looked || v_cursor.part_id;
                v_pop := v_place.pops[v_next];
                v_visible := v_cursor.next_off - 1;
                v_again_at := NULL;
                IF v_cursor.delayed_processing > 0 OR v_cursor.window_buffer > 0 THEN
                    SELECT v.upto, v.again_at INTO v_visible, v_again_at
                    FROM queen.visible(
                        v_cursor.part_id, v_cursor.acked, v_cursor.next_off, v_cursor.last_at,
                        v_cursor.delayed_processing, v_cursor.window_buffer, v_now
                    ) AS v;
                END IF;
                IF v_cursor.ahead IS NULL THEN
                    v_messages := greatest(least(v_visible - v_cursor.acked, p_batch[v_pop]), 0);
                    v_upto := v_cursor.acked + v_messages;
                ELSE
                    SELECT e.upto, e.messages INTO v_upto, v_messages
                    FROM queen.run_end(v_cursor.acked, v_cursor.ahead, v_visible, p_batch[v_pop]) AS e;
                END IF;
                IF v_messages = 0 THEN
                    i_part := i_part || v_cursor.part_id;
                    i_grp := i_grp || v_cursor.grp_id;
                    i_again_at := i_again_at || v_again_at;
                    i_delay := i_delay || v_cursor.delayed_processing;
                    i_pause := i_pause || v_cursor.window_buffer;
                    CONTINUE;
                END IF;
                c_pop := c_pop || v_pop;
                c_part := c_part || v_cursor.part_id;
                c_grp := c_grp || v_cursor.grp_id;
                c_acked := c_acked || v_cursor.acked;
                c_upto := c_upto || v_upto;
                c_ahead := c_ahead || v_cursor.ahead;
                c_seen := c_seen || v_cursor.seen;
                c_attempt := c_attempt || v_cursor.attempts + 1;
                c_ready := c_ready
                    || v_now + make_interval(secs => coalesce(p_seconds[v_pop], nullif(v_cursor.lease_time, 0), 60));
                p_batch[v_pop] := p_batch[v_pop] - v_messages;
                p_parts[v_pop] := p_parts[v_pop] - 1;
                IF least(p_batch[v_pop], p_parts[v_pop]) <= 0 THEN
                    v_next := v_next + 1;
                END IF;
            END LOOP;
            CLOSE v_page;
            EXIT WHEN v_rows < v_wanted;
        END LOOP;
        IF v_next <= cardinality(v_place.pops) THEN
            RETURN QUERY
            SELECT NULL::int, u.grp_id, v_place.part_id, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint, NULL::int,
                CASE
                    WHEN g.id IS NULL THEN NULL
                    WHEN c.ready_at < 'infinity' THEN extract(epoch FROM c.ready_at - v_now)::float8
                    ELSE 'infinity'
                END,
                NULL::bigint, NULL::timestamptz, NULL::bytea, NULL::int, NULL::bytea
            FROM unnest(v_place.groups) AS u (grp_id)
            LEFT JOIN queen.consumer_groups_metadata AS g ON g.id = u.grp_id
            CROSS JOIN LATERAL (
                SELECT min(l.ready_at) AS ready_at FROM queen.partition_consumers AS l
                WHERE l.grp_id = u.grp_id AND l.part_id <> ALL(v_looked)
                    AND (v_place.part_id IS NULL OR l.part_id = v_place.part_id)
            ) AS c;
        END IF;
    END LOOP;

    UPDATE queen.partition_consumers AS c
    SET
        lease = p_lease[u.pop], upto = u.upto, seen = greatest(c.seen, u.upto), attempts = u.attempt, ready_at = u.ready_at
    FROM unnest(c_pop, c_part, c_grp, c_upto, c_attempt, c_ready) AS u (pop, part_id, grp_id, upto, attempt, ready_at)
    WHERE c.part_id = u.part_id AND c.grp_id = u.grp_id;
    IF array_position(p_lease, NULL) IS NOT NULL THEN
        PERFORM queen.complete_deliveries(u.part_id, u.grp_id, v_now)
        FROM unnest(c_pop, c_part, c_grp) AS u (pop, part_id, grp_id) WHERE p_lease[u.pop] IS NULL;
    END IF;
    IF i_part <> '{}' THEN
        -- Under the delays that hold now: a configure that has been committed since they were read is not overruled, and one
        -- that comes later waits for these cursors.
        UPDATE queen.partition_consumers AS c
        SET
            lease = NULL,
            ready_at = CASE WHEN q.delayed_processing = u.delay AND q.window_buffer = u.pause THEN u.again_at ELSE v_now END
        FROM unnest(i_part, i_grp, i_again_at, i_delay, i_pause) AS u (part_id, grp_id, again_at, delay, pause)
        JOIN queen.consumer_groups_metadata AS g ON g.id = u.grp_id
        JOIN queen.queues AS q ON q.id = g.queue_id
        WHERE c.part_id = u.part_id AND c.grp_id = u.grp_id AND u.again_at IS NOT NULL;
        PERFORM queen.park(i_part, i_grp);
    END IF;

    RETURN QUERY
    SELECT
        u.pop, u.grp_id, u.part_id, u.acked + 1, u.upto,
        CASE WHEN u.ahead IS NOT NULL
            THEN ARRAY(SELECT o FROM generate_series(u.acked + 1, u.upto) AS o WHERE u.ahead @> o)
        END,
        u.seen, u.attempt, NULL::float8, s.first_off + s.lo, s.created_at,
        CASE WHEN s.lo > 0 THEN substr(e.part, 5) ELSE e.part END, b.start,
        CASE WHEN s.lo = 0 AND s.hi = s.n - 1 THEN s.data
            ELSE substr(s.data, b.start + 1, queen.message_end(e.part, octet_length(e.part) / 4 - 1) - b.start) END
    FROM unnest(c_pop, c_grp, c_part, c_acked, c_upto, c_ahead, c_seen, c_attempt)
        AS u (pop, grp_id, part_id, acked, upto, ahead, seen, attempt)
    CROSS JOIN LATERAL (
        SELECT
            l.last_off - l.n + 1 AS first_off, l.created_at, l.n, l.ends, l.data,
            greatest(u.acked + 1 - (l.last_off - l.n + 1), 0)::int AS lo,
            (least(u.upto, l.last_off) - (l.last_off - l.n + 1))::int AS hi
        FROM queen.segments AS l
        WHERE l.part_id = u.part_id AND l.last_off > u.acked AND l.last_off <= (
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
    ) AS b;
END $$;
COMMENT ON FUNCTION queen.pop_unified_batch_v1 IS
'Claims cursors for many pops at once, oldest ready first, and returns the segments with their messages.';
