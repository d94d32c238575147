-- Plans: ADR 38 says why = ANY(ARRAY[x]), part_id + 0.

-- Moves a cursor over the contiguous part of the offsets that are done ahead of it.
CREATE OR REPLACE FUNCTION queen.advance(INOUT acked bigint, INOUT ahead int8multirange)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_done int8multirange := coalesce(ahead, '{}') + int8multirange(int8range(NULL, acked, '[]'));
BEGIN
    SELECT upper(r) - 1 INTO acked FROM unnest(v_done) AS r LIMIT 1;
    ahead := nullif(v_done - int8multirange(int8range(NULL, acked, '[]')), '{}'::int8multirange);
END $$;
COMMENT ON FUNCTION queen.advance IS
    'Internal: moves a cursor over the offsets finished ahead of it, and returns both.';

-- The run of messages above p_acked that a pop takes: at most p_messages and p_bytes of data (but one message at least,
-- if p_must), without those that are done ahead, and only what delayed_processing and window_buffer let a pop see. It
-- reads no more segments than the run spans. upto: its last offset; messages: how many it delivers; again_at: nothing
-- is visible, and when that will change by itself; full: it ends where it does for want of bytes.
CREATE OR REPLACE FUNCTION queen.next_run(
    p_part bigint, p_acked bigint, p_ahead int8multirange, p_delay int, p_window int, p_messages int, p_bytes bigint,
    p_must bool, p_now timestamptz,
    OUT upto bigint, OUT messages int, OUT bytes bigint, OUT again_at timestamptz, OUT full_up bool
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    -- Read from the row once, not per question.
    v_ahead int8multirange := p_ahead + '{}'::int8multirange;
    v_segment record;
    v_first bigint;
    v_last bigint;
    v_wanted bigint;
    v_size bigint;
BEGIN
    upto := p_acked;
    messages := 0;
    bytes := 0;
    full_up := false;
    IF p_window > 0 THEN
        SELECT e.last_at + make_interval(secs => p_window) INTO again_at FROM queen.log_ends AS e WHERE e.part_id = p_part;
        IF again_at > p_now THEN
            RETURN;
        END IF;
        again_at := NULL;
    END IF;
    FOR v_segment IN
        SELECT s.last_off, s.n, s.created_at, octet_length(s.data) AS size
        FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off > p_acked AND s.n > 0 ORDER BY s.last_off
    LOOP
        IF p_delay > 0 AND v_segment.created_at + make_interval(secs => p_delay) > p_now THEN
            again_at := CASE WHEN messages = 0 THEN v_segment.created_at + make_interval(secs => p_delay) END;
            RETURN;
        END IF;
        v_first := greatest(v_segment.last_off - v_segment.n, p_acked) + 1;
        IF v_ahead IS NULL THEN
            v_last := least(v_segment.last_off, v_first + p_messages - messages - 1);
        ELSE
            SELECT min(r.off), max(r.off) INTO v_first, v_last
            FROM (
                SELECT o.off FROM generate_series(v_first, v_segment.last_off) AS o (off)
                WHERE NOT v_ahead @> o.off ORDER BY o.off LIMIT p_messages - messages
            ) AS r;
            CONTINUE WHEN v_first IS NULL;
        END IF;
        v_size := v_segment.size;
        IF bytes + v_size > p_bytes
            OR (v_size > 65536 AND v_last - v_first + 1 < v_segment.n) THEN
            v_wanted := v_last;
            SELECT f.last, f.size INTO v_last, v_size
            FROM queen.fit(
                p_part, v_segment.last_off, v_first, v_wanted, p_bytes - bytes, p_must AND messages = 0) AS f;
            full_up := v_last IS DISTINCT FROM v_wanted;
            EXIT WHEN v_last IS NULL;
        END IF;
        upto := v_last;
        bytes := bytes + v_size;
        messages := messages + CASE
            WHEN v_ahead IS NULL THEN v_last - v_first + 1
            ELSE (SELECT count(*) FROM generate_series(v_first, v_last) AS o (off) WHERE NOT v_ahead @> o.off)
        END;
        EXIT WHEN full_up OR messages >= p_messages;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.next_run IS 'Internal: the next contiguous messages for a cursor.';

-- How far the messages p_first to p_last of a segment fit into p_bytes of data: the last one that does (the first at
-- least, if p_must; null: none), and their size.
CREATE OR REPLACE FUNCTION queen.fit(
    p_part bigint, p_segment bigint, p_first bigint, p_last bigint, p_bytes bigint, p_must bool,
    OUT last bigint, OUT size bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_ends bytea;
    v_base bigint;     -- offset of the first message of the segment
    v_begin int;
    v_low int;         -- a position that fits, or the one before the first
    v_high int;
    v_middle int;
BEGIN
    -- A copy: the column may be stored out of line.
    SELECT substr(s.ends, 1), s.last_off - s.n + 1 INTO v_ends, v_base
    FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off = p_segment;
    v_low := p_first - v_base - CASE WHEN p_must THEN 0 ELSE 1 END;
    v_high := p_last - v_base;
    v_begin := queen.message_end(v_ends, (p_first - v_base - 1)::int);
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high + 1) / 2;
        IF queen.message_end(v_ends, v_middle) - v_begin <= p_bytes THEN
            v_low := v_middle;
        ELSE
            v_high := v_middle - 1;
        END IF;
    END LOOP;
    IF v_low >= p_first - v_base THEN
        last := v_base + v_low;
        size := queen.message_end(v_ends, v_low) - v_begin;
    END IF;
END $$;
COMMENT ON FUNCTION queen.fit IS 'Internal: how many messages of a segment fit into some bytes.';

-- Parks cursors that have nothing to deliver, so that no pop looks at them before the next push. The caller has locked
-- the cursors, in these versions. Partitions are locked with SKIP LOCKED only, because a push holds them while it waits
-- for cursors: a cursor whose partition is locked stays ready, and the next pop tries again. Returns the partitions of
-- the parked cursors, ascending.
CREATE OR REPLACE FUNCTION queen.park(p_part bigint[], p_grp bigint[], p_ver bigint[]) RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_parked bigint[];
BEGIN
    SELECT array_agg(k.part_id), array_agg(k.grp_id), array_agg(k.ver) INTO p_part, p_grp, p_ver
    FROM unnest(p_part, p_grp, p_ver) AS k (part_id, grp_id, ver)
    CROSS JOIN LATERAL (
        SELECT 1 FROM queen.partition_locks AS l WHERE l.part_id = k.part_id FOR NO KEY UPDATE SKIP LOCKED
    ) AS l;
    IF p_part IS NULL THEN
        RETURN NULL;
    END IF;
    -- A statement of its own, to see what was committed before the locks were had.
    WITH parked AS (
        UPDATE queen.partition_consumers AS c SET ready_at = 'infinity', lease = NULL, ver = c.ver + 1
        FROM (
            SELECT k.part_id, k.grp_id, k.ver, e.next_off
            FROM unnest(p_part, p_grp, p_ver) AS k (part_id, grp_id, ver)
            CROSS JOIN LATERAL (SELECT n.next_off FROM queen.log_ends AS n WHERE n.part_id = k.part_id OFFSET 0) AS e
        ) AS u
        WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver
            AND c.acked >= u.next_off - 1
        RETURNING c.part_id
    )
    SELECT array_agg(p.part_id ORDER BY p.part_id) INTO v_parked FROM parked AS p;
    RETURN v_parked;
END $$;
COMMENT ON FUNCTION queen.park IS 'Internal: parks those of the given cursors that have nothing to deliver.';

-- Locks cursors in (part_id, grp_id) order: those that a push to p_part will wake, and those of acks. The caller has locked
-- these partitions.
CREATE OR REPLACE FUNCTION queen.lock_cursors(p_part bigint[], p_ack_part bigint[], p_ack_grp bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM 1
    FROM (
        SELECT c.part_id, c.grp_id
        FROM unnest(p_part) AS u (part_id)
        CROSS JOIN LATERAL (SELECT l.part_id, l.next_off FROM queen.log_ends AS l WHERE l.part_id = u.part_id OFFSET 0) AS e
        CROSS JOIN LATERAL (
            SELECT p.part_id, p.grp_id FROM queen.partition_consumers AS p
            WHERE p.part_id + 0 = e.part_id AND p.acked = e.next_off - 1 AND p.ready_at = 'infinity' OFFSET 0
        ) AS c
        UNION
        SELECT a.part_id, a.grp_id FROM unnest(p_ack_part, p_ack_grp) AS a (part_id, grp_id)
        ORDER BY part_id, grp_id
    ) AS u
    CROSS JOIN LATERAL (
        SELECT 1 FROM queen.partition_consumers AS l
        WHERE l.part_id = u.part_id AND l.grp_id = u.grp_id ORDER BY l.ver DESC LIMIT 1
        FOR UPDATE
    ) AS c;
END $$;
COMMENT ON FUNCTION queen.lock_cursors IS 'Internal: locks the cursors that a transaction will change.';

-- Failures counted against messages that are not done yet.
CREATE OR REPLACE FUNCTION queen.open_retries(p_retries jsonb, p_acked bigint, p_ahead int8multirange) RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN p_retries IS NOT NULL THEN (
    SELECT jsonb_object_agg(r.key, r.value) FROM jsonb_each(p_retries) AS r
    WHERE r.key::bigint > p_acked AND NOT coalesce(p_ahead @> r.key::bigint, false)
) END;
COMMENT ON FUNCTION queen.open_retries IS
    'Internal: the failure counts of a cursor that remain after messages were finished.';
