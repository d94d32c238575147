-- The claims of pops of all kinds, as they were until commit cc84297.
--
-- Each page leaves out by an array (`<> ALL(v_looked)`) what the pages before have seen, and reads it again to do so; a
-- pop of one partition has pages of one row. Arrays grow by appending, which copies them.
--
-- A mutant of G-COST-1: tests/integration/test_growth.py puts it in place of the product's and must notice. The first
-- function is the old one under a name of its own, on the tables of today. The second one attaches it: it has the name
-- and the arguments by which the product calls that step. A change of tables or names has to adapt what does not fit
-- any more, and leaves the fault in (docs/adr/0043-growth-tests.md).
CREATE OR REPLACE FUNCTION queen.old_claim_one_by_one(
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_part bigint[],
    p_now timestamptz,
    OUT v_claims queen.claims, OUT v_idle_part bigint[], OUT v_idle_grp bigint[], OUT v_idle_ver bigint[],
    OUT v_again timestamptz[], OUT v_delay int[], OUT v_window int[]
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_place record;
    v_cursor record;
    v_page refcursor;
    v_rows int;
    v_wanted int;
    v_next int;               -- the pop to serve next, as a place in v_place.pops
    v_pop int;
    v_looked bigint[];       -- partitions of this place that the call has seen, so that the next page leaves them out
    v_again_at timestamptz;
    v_upto bigint;
    v_messages int;
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
        -- What another place of this call has taken is locked by us and not written yet: it still looks ready.
        v_looked := ARRAY(
            SELECT u.part_id
            FROM unnest(v_claims.part_id || v_idle_part, v_claims.grp_id || v_idle_grp) AS u (part_id, grp_id)
            WHERE u.grp_id = ANY(v_place.groups)
        );
        LOOP
            WHILE v_next <= cardinality(v_place.pops)
                AND least(p_batch[v_place.pops[v_next]], p_parts[v_place.pops[v_next]]) <= 0 LOOP
                v_next := v_next + 1;
            END LOOP;
            EXIT WHEN v_next > cardinality(v_place.pops);
            IF v_place.part_id IS NOT NULL THEN
                v_wanted := 1;
                OPEN v_page FOR
                    SELECT c.*, q.lease_time, q.delayed_processing, q.window_buffer
                    FROM (
                        SELECT l.grp_id, l.part_id, l.ver, l.acked, l.ahead, l.seen, l.attempts
                        FROM queen.partition_consumers AS l
                        WHERE l.part_id = v_place.part_id AND l.grp_id = v_place.groups[1] AND l.ready_at <= p_now
                            AND l.part_id <> ALL(v_looked)
                        FOR UPDATE
                    ) AS c
                    JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
                    JOIN queen.queues AS q ON q.id = g.queue_id;
            ELSE
                SELECT least(sum(p_parts[u.pop]), 1000) INTO v_wanted FROM unnest(v_place.pops[v_next:]) AS u (pop);
                OPEN v_page FOR
                    SELECT c.*, q.lease_time, q.delayed_processing, q.window_buffer
                    FROM queen.consumer_groups_metadata AS g
                    JOIN queen.queues AS q ON q.id = g.queue_id
                    CROSS JOIN LATERAL (
                        SELECT l.grp_id, l.part_id, l.ver, l.acked, l.ahead, l.seen, l.attempts, l.ready_at
                        FROM queen.partition_consumers AS l
                        WHERE l.grp_id = g.id AND l.ready_at <= p_now AND l.ready_at < 'infinity'
                            AND l.part_id <> ALL(v_looked)
                        ORDER BY l.ready_at, l.part_id + 0 LIMIT v_wanted
                        FOR UPDATE SKIP LOCKED
                    ) AS c
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
                SELECT r.upto, r.messages, r.again_at INTO v_upto, v_messages, v_again_at
                FROM queen.next_run(
                    v_cursor.part_id, v_cursor.acked, v_cursor.ahead, v_cursor.delayed_processing, v_cursor.window_buffer,
                    p_batch[v_pop], 9223372036854775807, true, p_now
                ) AS r;
                IF v_messages = 0 THEN
                    v_idle_part := v_idle_part || v_cursor.part_id;
                    v_idle_grp := v_idle_grp || v_cursor.grp_id;
                    v_idle_ver := v_idle_ver || v_cursor.ver;
                    v_again := v_again || v_again_at;
                    v_delay := v_delay || v_cursor.delayed_processing;
                    v_window := v_window || v_cursor.window_buffer;
                    CONTINUE;
                END IF;
                v_claims.pop := v_claims.pop || v_pop;
                v_claims.part_id := v_claims.part_id || v_cursor.part_id;
                v_claims.grp_id := v_claims.grp_id || v_cursor.grp_id;
                v_claims.ver := v_claims.ver || v_cursor.ver;
                v_claims.acked := v_claims.acked || v_cursor.acked;
                v_claims.upto := v_claims.upto || v_upto;
                v_claims.ahead := v_claims.ahead || v_cursor.ahead;
                v_claims.seen := v_claims.seen || v_cursor.seen;
                v_claims.attempt := v_claims.attempt || v_cursor.attempts + 1;
                v_claims.ready_at := v_claims.ready_at
                    || p_now + make_interval(secs => coalesce(p_seconds[v_pop], nullif(v_cursor.lease_time, 0), 60));
                p_batch[v_pop] := p_batch[v_pop] - v_messages;
                p_parts[v_pop] := p_parts[v_pop] - 1;
                IF least(p_batch[v_pop], p_parts[v_pop]) <= 0 THEN
                    v_next := v_next + 1;
                END IF;
            END LOOP;
            CLOSE v_page;
            EXIT WHEN v_rows < v_wanted;
        END LOOP;
    END LOOP;
END $$;

-- Attached: in the product each round writes what it has found.
CREATE OR REPLACE FUNCTION queen.claim_in_rounds(
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_part bigint[],
    p_bytes bigint, p_bytes_all bigint, p_now timestamptz
) RETURNS queen.claims
LANGUAGE plpgsql
AS $$
DECLARE
    v_found record;
BEGIN
    SELECT * INTO v_found FROM queen.old_claim_one_by_one(p_batch, p_parts, p_lease, p_seconds, p_pop, p_grp, p_part, p_now);
    PERFORM queen.write_claims(v_found.v_claims, p_lease, p_now);
    IF v_found.v_idle_part IS NOT NULL THEN
        PERFORM queen.rest(
            v_found.v_idle_part, v_found.v_idle_grp, v_found.v_idle_ver, v_found.v_again, v_found.v_delay, v_found.v_window,
            p_now);
    END IF;
    RETURN v_found.v_claims;
END $$;
