-- Writes the dead letters of messages that a group gives up. p_off are their distinct offsets, p_error the reasons, p_tries
-- the numbers of failures. Each segment is read once, even if several of its messages are given up.
CREATE OR REPLACE FUNCTION queen.bury(
    p_queue_id bigint, p_part bigint, p_grp bigint, p_group text, p_off bigint[], p_error text[], p_tries int[],
    p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM queen.bury_of_segment(p_queue_id, p_part, p_grp, p_group, g.last_off, g.off, g.error, g.tries, p_now)
    FROM (
        SELECT s.last_off, array_agg(u.off ORDER BY u.off) AS off, array_agg(u.error ORDER BY u.off) AS error,
            array_agg(u.tries ORDER BY u.off) AS tries
        FROM unnest(p_off, p_error, p_tries) AS u (off, error, tries)
        LEFT JOIN LATERAL (
            SELECT l.last_off FROM queen.segments AS l
            WHERE l.part_id = p_part AND l.last_off >= u.off ORDER BY l.last_off LIMIT 1
        ) AS s ON true
        GROUP BY s.last_off ORDER BY s.last_off
    ) AS g;
END $$;
COMMENT ON FUNCTION queen.bury IS 'Internal: writes dead letters.';

CREATE OR REPLACE FUNCTION queen.bury_of_segment(
    p_queue_id bigint, p_part bigint, p_grp bigint, p_group text, p_segment bigint, p_off bigint[], p_error text[],
    p_tries int[], p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    INSERT INTO queen.dead_letter_queue AS d (
        queue_id, part_id, off, grp_id, consumer_group, transaction_id, trace_id, producer_sub, payload, error,
        retry_count, created_at, failed_at, key_id, headers
    )
    SELECT
        p_queue_id, p_part, u.off, p_grp, p_group,
        coalesce(m.transaction_id, queen.message_uuid(p_part, u.off)::text), m.trace_id, m.producer_sub,
        coalesce(m.payload, 'null'), coalesce(nullif(u.error, ''), 'Retries exhausted'), u.tries,
        coalesce(m.created_at, p_now), p_now, m.key_id, m.headers
    FROM unnest(p_off, p_error, p_tries) AS u (off, error, tries)
    LEFT JOIN queen.segment_messages(p_part, p_segment, p_off) AS m ON m.off = u.off
    ORDER BY u.off
    -- The same message can fail again for the same group only after a seek: then its dead letter is updated.
    ON CONFLICT (part_id, off, grp_id) DO UPDATE
    SET error = excluded.error, retry_count = excluded.retry_count, failed_at = excluded.failed_at;
END $$;
COMMENT ON FUNCTION queen.bury_of_segment IS 'Internal: writes dead letters of one segment.';

-- The meaning of an ack, one cursor at a time: docs/semantics.md, section Ack. The caller holds the cursor.
-- One element per offset or run of offsets: c completed, f failed, r retry, d dead letter; runs are only c, under a lease.
-- p_final is what transactions want: f is the same as d, and what is done already is refused. p_park: a cursor with nothing
-- left is parked, which locks its partition until the commit.
CREATE OR REPLACE FUNCTION queen.ack_cursor(
    p_part bigint, p_grp bigint, p_ver bigint, p_now timestamptz, p_final bool,
    p_ord int[], p_lease uuid[], p_kind text[], p_first bigint[], p_last bigint[], p_error text[], p_park bool
) RETURNS TABLE (
    ord int, problem text, done_upto bigint, also_done bigint[], within bigint, exists_upto bigint, released bool,
    dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_cursor queen.partition_consumers;
    v_group record;
    v_end_off bigint;             -- the newest message
    v_live bool;
    -- Read from the row once, not per element: both may be large.
    v_ahead int8multirange;
    v_retries jsonb;
    v_before int8multirange;      -- done before this call
    v_items queen.ack_result[];
    v_done int8multirange;
    v_failed int8multirange;
    v_again int8multirange;
    v_delay interval := '0';
    v_end bool;
    v_parked bool := false;
    b_off bigint[];               -- dead letters to write
    b_error text[];
    b_tries int[];
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
    SELECT e.next_off - 1 INTO v_end_off FROM queen.log_ends AS e WHERE e.part_id = p_part;
    v_live := v_cursor.lease IS NOT NULL AND v_cursor.ready_at > p_now;
    v_ahead := coalesce(v_cursor.ahead, '{}') + '{}'::int8multirange;
    v_retries := coalesce(v_cursor.retries, '{}') || '{}'::jsonb;
    v_before := v_ahead + int8multirange(int8range(NULL, v_cursor.acked, '[]'));

    -- The outcome of each element.
    SELECT array_agg((
        j.ord, j.kind, j.first, j.last, j.error, j.tries,
        CASE
            WHEN j.done OR j.problem IS NOT NULL OR j.first > j.within THEN NULL
            WHEN j.kind IN ('c', 'r') THEN j.kind
            WHEN p_final OR j.kind = 'd' OR j.tries >= v_group.retry_limit THEN 'd'
            ELSE 'f'
        END,
        j.problem, CASE WHEN j.done THEN j.last ELSE v_cursor.acked END, j.also_done,
        CASE WHEN NOT j.done AND j.problem IS NULL THEN j.within END
    )::queen.ack_result) INTO v_items
    FROM (
        SELECT
            u.ord, u.kind, u.first, u.last, u.error, a.done,
            CASE
                WHEN a.done AND (u.kind <> 'c' OR p_final) THEN 'Message already completed'
                WHEN a.done THEN NULL
                WHEN u.lease IS NOT NULL AND (NOT v_live OR u.lease <> v_cursor.lease) THEN 'Invalid or expired lease'
                WHEN u.lease IS NULL AND v_live AND (u.kind <> 'c' OR u.first <= v_cursor.upto) THEN 'Invalid or expired lease'
            END AS problem,
            -- If a run is refused, or ends outside of the lease, some of its messages may be done.
            CASE
                WHEN u.kind <> 'c' THEN NULL
                WHEN isempty(v_ahead) THEN '{}'
                ELSE ARRAY(SELECT o FROM generate_series(u.first, u.last) AS o WHERE v_ahead @> o)
            END AS also_done,
            CASE WHEN u.lease IS NULL THEN v_end_off ELSE v_cursor.upto END AS within,
            CASE WHEN u.kind IN ('f', 'd') THEN coalesce((v_retries ->> u.first::text)::int, 0) END AS tries
        FROM unnest(p_ord, p_lease, p_kind, p_first, p_last, p_error) AS u (ord, lease, kind, first, last, error)
        CROSS JOIN LATERAL (
            SELECT int8range(u.first, u.last, '[]') <@ v_before OR (p_final AND int8range(u.first, u.last, '[]') && v_before)
                AS done
        ) AS a
    ) AS j;

    SELECT
        v_before + coalesce(range_agg(int8range(i.first, least(i.last, i.within), '[]'))
            FILTER (WHERE i.verdict IN ('c', 'd')), '{}'),
        coalesce(range_agg(int8range(i.first, i.first, '[]')) FILTER (WHERE i.verdict = 'f'), '{}'),
        coalesce(range_agg(int8range(i.first, i.first, '[]')) FILTER (WHERE i.verdict IN ('r', 'f')), '{}')
    INTO v_done, v_failed, v_again
    FROM unnest(v_items) AS i;
    v_failed := v_failed - v_done;
    v_again := v_again - v_done;
    IF v_group.buries THEN
        -- The same message twice counts once.
        SELECT array_agg(b.first), array_agg(b.error), array_agg(b.tries) INTO b_off, b_error, b_tries
        FROM (
            SELECT DISTINCT ON (i.first) i.first, i.error, i.tries FROM unnest(v_items) AS i
            WHERE i.verdict = 'd' ORDER BY i.first, i.kind, i.ord
        ) AS b;
        IF b_off IS NOT NULL THEN
            PERFORM queen.bury(v_group.queue_id, p_part, p_grp, v_group.name, b_off, b_error, b_tries, p_now);
        END IF;
    END IF;
    IF NOT isempty(v_failed) THEN
        v_delay := make_interval(secs => v_group.retry_delay / 1000.0);
        SELECT v_retries || jsonb_object_agg(o, coalesce((v_retries ->> o::text)::int, 0) + 1) INTO v_retries
        FROM unnest(v_failed) AS r, generate_series(lower(r), upper(r) - 1) AS o;
    END IF;
    SELECT a.acked, a.ahead INTO v_cursor.acked, v_cursor.ahead FROM queen.advance(v_cursor.acked, v_done) AS a;
    v_end := v_live AND (NOT isempty(v_again) OR v_done @> int8range(NULL, v_cursor.upto, '[]'));
    UPDATE queen.partition_consumers AS c
    SET
        acked = v_cursor.acked, ahead = v_cursor.ahead,
        -- An ended lease is removed: with a ready_at in the future, that of a retry, it would count as live.
        lease = CASE WHEN v_live AND NOT v_end THEN c.lease END,
        attempts = CASE WHEN v_cursor.acked < c.seen THEN c.attempts ELSE 0 END,
        ready_at = CASE
            WHEN v_end THEN p_now + v_delay
            WHEN isempty(v_again) THEN c.ready_at
            ELSE greatest(c.ready_at, p_now + v_delay)
        END,
        -- Two columns: pops look at ready_at only, which other waits move as well. retry_at holds the delay of a retry
        -- alone. Configure, which recomputes the other delays, and the repair after a clock that stepped back need to
        -- tell them apart.
        retry_at = greatest(c.retry_at, p_now + nullif(v_delay, '0')),
        retries = queen.open_retries(nullif(v_retries, '{}'), v_cursor.acked, v_cursor.ahead),
        ver = c.ver + 1
    WHERE c.part_id = p_part AND c.grp_id = p_grp AND c.ver = p_ver
    RETURNING c.ready_at INTO v_cursor.ready_at;
    IF p_park AND v_end AND isempty(v_again) THEN
        v_parked := queen.park(ARRAY[p_part], ARRAY[p_grp], ARRAY[p_ver + 1]) IS NOT NULL;
    END IF;
    RETURN QUERY
    SELECT i.ord, i.problem, i.done_upto, i.also_done, i.within, v_end_off, v_end AND i.problem IS NULL,
        coalesce(i.verdict = 'd', false) AND v_group.buries,
        v_end AND i.problem IS NULL AND NOT v_parked AND v_cursor.ready_at < 'infinity'
    FROM unnest(v_items) AS i;
END $$;
COMMENT ON FUNCTION queen.ack_cursor IS 'Internal: applies all acks of one call to one cursor.';

-- The acks of ack_messages_v1 for cursors other than p_moved_part, p_moved_grp: those of the cursors p_other_part,
-- p_other_grp, p_other_ver, which the caller has locked, and those of cursors that do not exist.
CREATE OR REPLACE FUNCTION queen.ack_other_cursors(
    p_part bigint[], p_grp bigint[], p_lease uuid[], p_kind text[], p_first bigint[], p_last bigint[],
    p_error text[], p_final bool, p_now timestamptz,
    p_moved_part bigint[], p_moved_grp bigint[], p_other_part bigint[], p_other_grp bigint[], p_other_ver bigint[]
) RETURNS TABLE (
    ord int, problem text, first_off bigint, done_upto bigint, also_done bigint[], within bigint,
    exists_upto bigint, released bool, dead bool, ready bool
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH element AS (
        SELECT u.ord::int AS ord, u.part_id, u.grp_id, u.lease, u.kind, u.first, u.last, u.error
        FROM unnest(p_part, p_grp, p_lease, p_kind, p_first, p_last, p_error)
            WITH ORDINALITY AS u (part_id, grp_id, lease, kind, first, last, error, ord)
        FULL JOIN unnest(p_moved_part, p_moved_grp) AS c (part_id, grp_id) ON c.part_id = u.part_id AND c.grp_id = u.grp_id
        WHERE CASE WHEN c.part_id IS NULL THEN true ELSE false END
    ), acked AS (
        SELECT r.*
        FROM (
            SELECT e.part_id, e.grp_id, c.ver, array_agg(e.ord) AS ord, array_agg(e.lease) AS lease,
                array_agg(e.kind) AS kind, array_agg(e.first) AS first, array_agg(e.last) AS last,
                array_agg(e.error) AS error
            FROM element AS e
            FULL JOIN unnest(p_other_part, p_other_grp, p_other_ver) AS c (part_id, grp_id, ver)
                ON c.part_id = e.part_id AND c.grp_id = e.grp_id
            WHERE CASE WHEN e.first IS NULL OR c.ver IS NULL THEN false ELSE true END
            GROUP BY e.part_id, e.grp_id, c.ver
        ) AS k
        CROSS JOIN LATERAL queen.ack_cursor(
            k.part_id, k.grp_id, k.ver, p_now, p_final, k.ord, k.lease, k.kind, k.first, k.last, k.error,
            true) AS r
    )
    SELECT e.ord, CASE WHEN a.ord IS NULL THEN 'Message not found' ELSE a.problem END,
        e.first, a.done_upto, a.also_done, a.within, a.exists_upto, coalesce(a.released, false),
        coalesce(a.dead, false), coalesce(a.ready, false)
    FROM element AS e LEFT JOIN acked AS a ON a.ord = e.ord;
END $$;
COMMENT ON FUNCTION queen.ack_other_cursors IS 'Internal: acks of cursors that do not just move on, cursor by cursor.';
