-- Moves a cursor over the contiguous part of what is done ahead of it.
CREATE OR REPLACE FUNCTION queen.advance(INOUT acked bigint, INOUT ahead int8multirange)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_done int8multirange := coalesce(ahead, '{}') + int8multirange(int8range(NULL, acked, '[]'));
BEGIN
    SELECT upper(r) - 1 INTO acked FROM unnest(v_done) AS r LIMIT 1;
    ahead := nullif(v_done - int8multirange(int8range(NULL, acked, '[]')), '{}'::int8multirange);
END $$;
COMMENT ON FUNCTION queen.advance IS 'Internal: cursor and offsets done ahead of it, after taking the contiguous ones in.';

-- Where a run of at most p_left messages above p_acked ends that leaves out what is done ahead: its last offset and how
-- many messages it delivers.
CREATE OR REPLACE FUNCTION queen.run_end(
    p_acked bigint, p_ahead int8multirange, p_visible bigint, p_left int, OUT upto bigint, OUT messages int
)
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF p_ahead IS NULL THEN
        messages := greatest(least(p_visible - p_acked, p_left), 0);
        upto := p_acked + messages;
        RETURN;
    END IF;
    -- Not farther than the run can reach: the whole backlog would be counted otherwise.
    SELECT least(p_visible, p_acked + p_left + sum(upper(r) - lower(r))) INTO p_visible FROM unnest(p_ahead) AS r;
    SELECT max(o), count(*) INTO upto, messages
    FROM (
        SELECT o FROM generate_series(p_acked + 1, p_visible) AS o WHERE NOT p_ahead @> o ORDER BY o LIMIT p_left
    ) AS run;
END $$;
COMMENT ON FUNCTION queen.run_end IS 'Internal: the end of the next run of messages of a cursor.';

-- The highest offset that delayed_processing and window_buffer let a pop see, and when that will change by itself.
-- created_at rises with the offset, so what is visible is a prefix.
CREATE OR REPLACE FUNCTION queen.visible(
    p_part bigint, p_acked bigint, p_next_off bigint, p_last_at timestamptz, p_delay int, p_window int,
    p_now timestamptz,
    OUT upto bigint, OUT again_at timestamptz
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_hidden record;
BEGIN
    upto := p_next_off - 1;
    IF p_window > 0 AND p_last_at + make_interval(secs => p_window) > p_now THEN
        upto := p_acked;
        again_at := p_last_at + make_interval(secs => p_window);
    ELSIF p_delay > 0 THEN
        SELECT s.last_off - s.n AS before, s.created_at INTO v_hidden
        FROM queen.segments AS s
        WHERE s.part_id = p_part AND s.last_off > p_acked AND s.created_at + make_interval(secs => p_delay) > p_now
        ORDER BY s.last_off LIMIT 1;
        IF FOUND THEN
            upto := greatest(v_hidden.before, p_acked);
            again_at := v_hidden.created_at + make_interval(secs => p_delay);
        END IF;
    END IF;
END $$;
COMMENT ON FUNCTION queen.visible IS 'Internal: how far a pop can see in a partition with delayed_processing or window_buffer.';

-- Parks cursors that have nothing to deliver, so that no pop looks at them before the next push. The caller holds the
-- cursors. Heads are taken with SKIP LOCKED only, because a push holds its heads while it waits for cursors: a cursor
-- whose head is taken stays ready, and the next pop tries again.
CREATE OR REPLACE FUNCTION queen.park(p_part bigint[], p_grp bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_heads bigint[];
BEGIN
    SELECT array_agg(h.part_id) INTO v_heads
    FROM (
        SELECT l.part_id FROM queen.partition_lookup AS l
        WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE SKIP LOCKED
    ) AS h;
    IF v_heads IS NULL THEN
        RETURN;
    END IF;
    -- A statement of its own, to see what was committed before the locks were had.
    WITH parked AS (
        UPDATE queen.partition_consumers AS c SET ready_at = 'infinity', lease = NULL
        FROM unnest(p_part, p_grp) AS u (part_id, grp_id)
        JOIN queen.partition_lookup AS l ON l.part_id = ANY(ARRAY[u.part_id])
        WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = ANY(ARRAY[u.grp_id]) AND u.part_id = ANY(v_heads)
            AND (SELECT e.messages FROM queen.run_end(c.acked, c.ahead, l.next_off - 1, 1) AS e) = 0
        RETURNING c.part_id
    )
    UPDATE queen.partition_lookup AS l SET parked = true
    FROM (SELECT DISTINCT p.part_id FROM parked AS p) AS u
    WHERE l.part_id = ANY(ARRAY[u.part_id]) AND NOT l.parked;
END $$;
COMMENT ON FUNCTION queen.park IS 'Internal: parks those of the given cursors that have nothing to deliver.';

-- What a pop does with cursors that it found with nothing to deliver: they wait until something becomes visible by itself, or
-- are parked. Under the delays that hold now: a configure that has been committed since they were read is not overruled, and
-- one that comes later waits for these cursors, which the caller holds.
CREATE OR REPLACE FUNCTION queen.rest(p_claims queen.claims, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    UPDATE queen.partition_consumers AS c
    SET
        lease = NULL,
        ready_at = CASE WHEN q.delayed_processing = u.delay AND q.window_buffer = u.pause THEN u.again_at ELSE p_now END
    FROM unnest(p_claims.idle_part, p_claims.idle_grp, p_claims.again_at, p_claims.delay, p_claims.pause)
        AS u (part_id, grp_id, again_at, delay, pause)
    JOIN queen.consumer_groups_metadata AS g ON g.id = u.grp_id
    JOIN queen.queues AS q ON q.id = g.queue_id
    WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = ANY(ARRAY[u.grp_id]) AND u.again_at IS NOT NULL;
    PERFORM queen.park(p_claims.idle_part, p_claims.idle_grp);
END $$;
COMMENT ON FUNCTION queen.rest IS 'Internal: puts off or parks cursors that a pop found with nothing to deliver.';

-- autoAck: completes what a pop has just claimed, and parks the cursor if that was all. The caller holds the cursor.
CREATE OR REPLACE FUNCTION queen.complete_deliveries(p_part bigint, p_grp bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE queen.partition_consumers AS c
    SET
        acked = a.acked, ahead = a.ahead, lease = NULL, ready_at = p_now,
        attempts = CASE WHEN a.acked >= l.seen THEN 0 ELSE l.attempts END,
        retries = queen.open_retries(l.retries, a.acked, a.ahead)
    FROM queen.partition_consumers AS l, queen.advance(l.upto, l.ahead) AS a
    WHERE l.part_id = p_part AND l.grp_id = p_grp AND c.part_id = p_part AND c.grp_id = p_grp;
    PERFORM queen.park(ARRAY[p_part], ARRAY[p_grp]);
END $$;
COMMENT ON FUNCTION queen.complete_deliveries IS 'Internal: completes what autoAck has delivered.';

-- Failures counted against messages that are not done yet.
CREATE OR REPLACE FUNCTION queen.open_retries(p_retries jsonb, p_acked bigint, p_ahead int8multirange) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN p_retries IS NOT NULL THEN (
    SELECT jsonb_object_agg(r.key, r.value) FROM jsonb_each(p_retries) AS r
    WHERE r.key::bigint > p_acked AND NOT coalesce(p_ahead @> r.key::bigint, false)
) END;
COMMENT ON FUNCTION queen.open_retries IS 'Internal: what is left of a cursor''s counted failures after messages were done.';
