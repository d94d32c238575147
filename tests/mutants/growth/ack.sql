-- Acks of one cursor, as they were until commit cc84297.
--
-- Each element is added to a multirange and to an array, which copies them: n * n.
--
-- A mutant of G-COST-1: tests/integration/test_growth.py puts it in place of the product's and must notice. The first
-- function is the old one under a name of its own, on the tables of today. The second one attaches it: it has the name
-- and the arguments by which the product calls that step. A change of tables or names has to adapt what does not fit
-- any more, and leaves the fault in (docs/adr/0043-growth-tests.md).
CREATE OR REPLACE FUNCTION queen.old_ack_cursor(
    p_part bigint, p_grp bigint, p_ver bigint, p_now timestamptz, p_final bool,
    p_ord int[], p_lease uuid[], p_kind text[], p_first bigint[], p_last bigint[], p_error text[]
) RETURNS TABLE (
    ord int, problem text, done_upto bigint, also_done bigint[], within bigint, exists_upto bigint, released bool,
    dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_cursor queen.partition_consumers;
    v_group record;
    v_next_off bigint;
    v_live bool;
    v_before int8multirange;      -- done before this call
    v_completed int8multirange := '{}';
    v_dead int8multirange := '{}';
    v_failed int8multirange := '{}';
    v_again int8multirange := '{}';
    v_done int8multirange;
    v_item record;
    v_run int8multirange;
    v_tries int;
    v_dies bool;
    v_retries jsonb;
    v_delay interval := '0';
    v_end bool;
    v_parked bool := false;
    v_results queen.ack_result[] := '{}';
    v_result queen.ack_result;
BEGIN
    SELECT * INTO v_cursor FROM queen.partition_consumers AS c WHERE c.part_id = p_part AND c.grp_id = p_grp AND c.ver = p_ver;
    SELECT
        g.name, q.id AS queue_id, q.retry_limit, coalesce(q.retry_delay, 0) AS retry_delay,
        coalesce(
            q.dead_letter_queue OR q.dlq_after_max_retries, q.dead_letter_queue, q.dlq_after_max_retries, true) AS buries,
        g.starts_at
    INTO v_group
    FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id WHERE g.id = p_grp;
    IF v_group.starts_at IS NOT NULL THEN  -- what was pushed before its start is not for it
        v_cursor.acked := greatest(v_cursor.acked, queen.last_before(p_part, v_group.starts_at));
    END IF;
    SELECT h.next_off INTO v_next_off FROM queen.log_ends AS h WHERE h.part_id = p_part;
    v_live := v_cursor.lease IS NOT NULL AND v_cursor.ready_at > p_now;
    v_before := coalesce(v_cursor.ahead, '{}') + int8multirange(int8range(NULL, v_cursor.acked, '[]'));

    FOR v_item IN
        SELECT u.* FROM unnest(p_ord, p_lease, p_kind, p_first, p_last, p_error)
            AS u (ord, lease, kind, first, last, error)
        ORDER BY array_position(ARRAY['d', 'f', 'r', 'c'], u.kind), u.first
    LOOP
        v_run := int8multirange(int8range(v_item.first, v_item.last, '[]'));
        v_result := NULL;
        v_result.ord := v_item.ord;
        v_result.done_upto := v_cursor.acked;
        IF v_item.kind = 'c' THEN  -- of a run that is refused, or ends outside of the lease, some may be done
            v_result.also_done := ARRAY(
                SELECT o FROM unnest(v_run * v_cursor.ahead) AS r, generate_series(lower(r), upper(r) - 1) AS o);
        END IF;
        IF v_run <@ v_before OR (p_final AND v_run && v_before) THEN
            v_result.problem := CASE WHEN v_item.kind <> 'c' OR p_final THEN 'Message already completed' END;
            v_result.done_upto := v_item.last;
        ELSIF v_item.lease IS NOT NULL AND (NOT v_live OR v_item.lease <> v_cursor.lease) THEN
            v_result.problem := 'Invalid or expired lease';
        ELSIF v_item.lease IS NULL AND v_item.kind <> 'c' AND v_live THEN
            v_result.problem := 'Invalid or expired lease';
        ELSE
            v_result.within := CASE WHEN v_item.lease IS NULL THEN v_next_off - 1 ELSE v_cursor.upto END;
            v_run := v_run * int8multirange(int8range(NULL, v_result.within, '[]'));
            IF isempty(v_run) OR v_item.kind = 'c' THEN
                v_completed := v_completed + v_run;
            ELSIF v_item.kind = 'r' THEN
                v_again := v_again + v_run;
            ELSE
                v_tries := coalesce((v_cursor.retries ->> v_item.first::text)::int, 0);
                v_dies := p_final OR v_item.kind = 'd' OR v_tries >= v_group.retry_limit;
                -- The same message twice counts once.
                IF v_dies AND v_group.buries AND NOT v_run <@ v_dead THEN
                    PERFORM queen.bury(
                        v_group.queue_id, p_part, p_grp, v_group.name, ARRAY[v_item.first], ARRAY[v_item.error], ARRAY[v_tries],
                        p_now);
                END IF;
                IF v_dies THEN
                    v_dead := v_dead + v_run;
                    v_result.verdict := 'd';
                ELSE
                    v_failed := v_failed + v_run;
                    v_delay := make_interval(secs => v_group.retry_delay / 1000.0);
                END IF;
            END IF;
        END IF;
        v_results := v_results || v_result;
    END LOOP;

    v_done := v_before + v_dead + v_completed;
    v_failed := v_failed - v_done;
    v_again := v_again + v_failed - v_done;
    IF isempty(v_failed) THEN
        v_delay := '0';
    END IF;
    SELECT coalesce(v_cursor.retries, '{}') || jsonb_object_agg(o, coalesce((v_cursor.retries ->> o::text)::int, 0) + 1)
    INTO v_retries
    FROM unnest(v_failed) AS r, generate_series(lower(r), upper(r) - 1) AS o;
    SELECT a.acked, a.ahead INTO v_cursor.acked, v_cursor.ahead
    FROM queen.advance(v_cursor.acked, v_done) AS a;
    v_end := v_live AND (NOT isempty(v_again) OR v_done @> int8range(NULL, v_cursor.upto, '[]'));
    UPDATE queen.partition_consumers AS c
    SET
        acked = v_cursor.acked, ahead = v_cursor.ahead,
        -- An ended lease goes, or a retry's delay would bring it back to life.
        lease = CASE WHEN v_live AND NOT v_end THEN c.lease END,
        attempts = CASE WHEN v_cursor.acked < c.seen THEN c.attempts ELSE 0 END,
        ready_at = CASE
            WHEN v_end THEN p_now + v_delay
            WHEN isempty(v_again) THEN c.ready_at
            ELSE greatest(c.ready_at, p_now + v_delay)
        END,
        retry_at = greatest(c.retry_at, p_now + nullif(v_delay, '0')),
        retries = queen.open_retries(coalesce(v_retries, v_cursor.retries), v_cursor.acked, v_cursor.ahead), ver = c.ver + 1
    WHERE c.part_id = p_part AND c.grp_id = p_grp AND c.ver = p_ver
    RETURNING c.ready_at INTO v_cursor.ready_at;
    IF v_end AND isempty(v_again) THEN
        v_parked := queen.park(ARRAY[p_part], ARRAY[p_grp], ARRAY[p_ver + 1]) IS NOT NULL;
    END IF;
    RETURN QUERY
    SELECT r.ord, r.problem, r.done_upto, r.also_done, r.within, v_next_off - 1, v_end AND r.problem IS NULL,
        coalesce(r.verdict = 'd', false) AND v_group.buries,
        v_end AND r.problem IS NULL AND NOT v_parked AND v_cursor.ready_at < 'infinity'
    FROM unnest(v_results) AS r;
END $$;

-- Attached.
CREATE OR REPLACE FUNCTION queen.ack_cursor(
    p_part bigint, p_grp bigint, p_ver bigint, p_now timestamptz, p_final bool,
    p_ord int[], p_lease uuid[], p_kind text[], p_first bigint[], p_last bigint[], p_error text[], p_park bool
) RETURNS TABLE (
    ord int, problem text, done_upto bigint, also_done bigint[], within bigint, exists_upto bigint, released bool,
    dead bool, ready bool
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT * FROM queen.old_ack_cursor(
        p_part, p_grp, p_ver, p_now, p_final, p_ord, p_lease, p_kind, p_first, p_last, p_error);
END $$;
