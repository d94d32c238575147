-- Plans: ADR 38 says why = ANY(ARRAY[x]), part_id + 0.

-- The steps of queen.execute_transaction_v1 and of queen.execute_in_steps, which sets how their statements are planned.

-- Locks the partitions of a batch and reads their log ends: offset and time of what is appended, and whether a cursor is
-- parked at one of them. Not valid: the push options have changed since the batch was laid out, or the batch is fenced
-- out.
CREATE OR REPLACE FUNCTION queen.lock_log_ends(
    p_flush uuid, p_part bigint[], p_version bigint,
    OUT now timestamptz, OUT valid bool, OUT first_off bigint[], OUT created_at timestamptz[], OUT parked bool
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_locked int;
BEGIN
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    GET DIAGNOSTICS v_locked = ROW_COUNT;
    now := queen.write_clock();
    SELECT
        p_part = '{}' OR (
            v_locked = cardinality(p_part) AND coalesce(o.version = p_version, true)
            AND NOT EXISTS (SELECT 1 FROM queen.fenced_flushes AS f WHERE f.flush = p_flush)),
        l.first_off, l.at, l.parked
    INTO valid, first_off, created_at, parked
    FROM (
        SELECT array_agg(coalesce(e.last_off + 1, 0) ORDER BY u.ord) AS first_off,
            array_agg(greatest(e.created_at, now) ORDER BY u.ord) AS at, bool_or(c.parked) AS parked
        FROM unnest(p_part) WITH ORDINALITY AS u (part_id, ord)
        LEFT JOIN LATERAL (
            SELECT s.last_off, s.created_at FROM queen.segments AS s
            WHERE s.part_id = u.part_id ORDER BY s.last_off DESC LIMIT 1
        ) AS e ON true
        LEFT JOIN LATERAL (
            SELECT true AS parked FROM queen.partition_consumers AS p
            WHERE p.part_id + 0 = u.part_id AND p.acked = coalesce(e.last_off, -1) AND p.ready_at = 'infinity' LIMIT 1
        ) AS c ON true
    ) AS l
    JOIN queen.push_options AS o ON o.id;
END $$;
COMMENT ON FUNCTION queen.lock_log_ends IS
    'Internal: locks partitions; returns the offset and the time of the next message of each.';

-- One element per cursor, in the order of locks, of acks in any order; what they name by transaction id, by offset.
-- runs null: the acks of the cursor are one run.
CREATE OR REPLACE FUNCTION queen.gather_acks(
    p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[], p_ack_first bigint[], p_ack_last bigint[],
    p_ack_hash uuid[],
    OUT part_id bigint[], OUT grp_id bigint[], OUT lease uuid[], OUT first bigint[], OUT last bigint[],
    OUT runs int8multirange[], OUT ord int[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(g.part_id), array_agg(g.grp_id), array_agg(g.lease), array_agg(g.first), array_agg(g.last),
        array_agg(nullif(g.runs, int8multirange(int8range(g.first, g.last, '[]')))), array_agg(g.ord)
    INTO part_id, grp_id, lease, first, last, runs, ord
    FROM (
        SELECT e.part_id, e.grp_id, e.lease, min(e.ord) AS ord, max(e.last) AS last, range_agg(e.run) AS runs,
            CASE WHEN bool_and(e.first IS NOT NULL) THEN min(e.first) END AS first
        FROM (
            SELECT u.part_id, u.grp_id, u.lease, u.ord::int AS ord, coalesce(u.first, t.off) AS first,
                coalesce(u.last, t.off) AS last,
                int8range(coalesce(u.first, t.off), coalesce(u.last, t.off), '[]') AS run
            FROM unnest(p_ack_part, p_ack_grp, p_ack_lease, p_ack_first, p_ack_last, p_ack_hash)
                WITH ORDINALITY AS u (part_id, grp_id, lease, first, last, hash, ord)
            LEFT JOIN queen.transaction_ids AS t
                ON u.first IS NULL AND t.part_id = ANY(ARRAY[u.part_id]) AND t.hash = u.hash
        ) AS e
        GROUP BY e.part_id, e.grp_id, e.lease
        ORDER BY e.part_id, e.grp_id
    ) AS g;
END $$;
COMMENT ON FUNCTION queen.gather_acks IS 'Internal: acks of messages, as one element per cursor.';

-- Appends a batch and moves the cursors of completed messages, under the locks of queen.lock_log_ends.
-- Returns:   the acks that ended a lease: freed have messages behind them, drained are at the end of the log.
-- Raises:    QN002 if one of the acks is not of the next messages under a live lease; unique_violation if a
--            transaction id is there already.
CREATE OR REPLACE FUNCTION queen.append_and_complete(
    p_flush uuid, p_now timestamptz, p_first bigint[], p_at timestamptz[],
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[],
    p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[], p_ack_first bigint[], p_ack_last bigint[],
    p_ack_runs int8multirange[], p_ack_ord int[],
    OUT freed int[], OUT drained int[], OUT drained_part bigint[], OUT drained_grp bigint[], OUT drained_ver bigint[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_moved int;
BEGIN
    IF p_hash IS NOT NULL THEN
        INSERT INTO queen.transaction_ids (part_id, hash, off)
        SELECT u.part_id, u.hash, h.first_off + u.pos
        FROM unnest(p_hash_part, p_hash_pos, p_hash) AS u (part_id, pos, hash)
        JOIN unnest(p_part, p_first) AS h (part_id, first_off) ON h.part_id = u.part_id
        ORDER BY u.part_id, u.hash;
    END IF;
    -- A cursor that another transaction changes meanwhile has another version, and is not moved.
    WITH appended AS (
        INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
        SELECT u.part_id, u.first_off + u.n - 1, u.n, u.at, p_flush, u.ids, u.ends, u.data
        FROM unnest(p_part, p_first, p_at, p_n, p_data, p_ends, p_ids)
            AS u (part_id, first_off, at, n, data, ends, ids)
    ), moved AS (
        UPDATE queen.partition_consumers AS c
        SET
            acked = u.acked,
            ahead = u.ahead,
            lease = CASE WHEN u.acked < c.upto THEN c.lease END,
            attempts = CASE WHEN u.acked < c.seen THEN c.attempts ELSE 0 END,
            ready_at = CASE WHEN u.acked < c.upto THEN c.ready_at ELSE p_now END,
            ver = c.ver + 1
        FROM (
            SELECT v.place, v.ver, coalesce(a.ord_of_cursor, a.ord::int) AS ord,
                CASE WHEN d.done IS NULL THEN a.last ELSE (queen.advance(v.acked, d.done)).acked END AS acked,
                CASE WHEN d.done IS NULL THEN NULL ELSE (queen.advance(v.acked, d.done)).ahead END AS ahead
            FROM unnest(p_ack_part, p_ack_grp, p_ack_lease, p_ack_first, p_ack_last, p_ack_runs, p_ack_ord)
                WITH ORDINALITY AS a (part_id, grp_id, lease, first, last, runs, ord_of_cursor, ord)
            CROSS JOIN LATERAL (
                SELECT l.ctid AS place, l.ver, l.acked, l.ahead, l.upto, l.lease, l.ready_at, l.retries
                FROM queen.partition_consumers AS l
                WHERE l.part_id = a.part_id AND l.grp_id = a.grp_id ORDER BY l.ver DESC LIMIT 1
            ) AS v
            CROSS JOIN LATERAL (
                -- Not the next messages: they are done ahead of the cursor.
                SELECT CASE
                    WHEN v.ahead IS NULL AND a.runs IS NULL AND a.first = v.acked + 1 THEN NULL
                    ELSE coalesce(v.ahead, '{}') + coalesce(a.runs, int8multirange(int8range(a.first, a.last, '[]')))
                END AS done OFFSET 0
            ) AS d
            WHERE v.lease = a.lease AND v.ready_at > p_now AND v.retries IS NULL
                AND a.first > v.acked AND a.last <= v.upto
                AND NOT coalesce(
                    v.ahead && coalesce(a.runs, int8multirange(int8range(a.first, a.last, '[]'))), false)
            OFFSET 0
        ) AS u
        WHERE c.ctid = u.place AND c.ver = u.ver
        RETURNING c.part_id, c.grp_id, c.ver, u.ord, c.lease IS NULL AS ended, c.lease IS NULL AND NOT EXISTS (
            SELECT 1 FROM queen.segments AS s WHERE s.part_id = c.part_id AND s.last_off > c.acked
        ) AS drained
    )
    SELECT count(*), array_agg(m.ord) FILTER (WHERE m.ended AND NOT m.drained),
        array_agg(m.ord) FILTER (WHERE m.drained), array_agg(m.part_id) FILTER (WHERE m.drained),
        array_agg(m.grp_id) FILTER (WHERE m.drained), array_agg(m.ver) FILTER (WHERE m.drained)
    INTO v_moved, freed, drained, drained_part, drained_grp, drained_ver
    FROM moved AS m;
    IF v_moved < cardinality(p_ack_part) THEN
        RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
    END IF;
END $$;
COMMENT ON FUNCTION queen.append_and_complete IS
    'Internal: appends a batch and completes messages, if all of them are under a live lease.';

-- Replaces the negative numbers p_new by the partitions that were made (p_made); segments are in part_id order again.
CREATE OR REPLACE FUNCTION queen.put_made_partitions(
    p_new_part bigint[], p_made bigint[],
    INOUT p_part bigint[], INOUT p_n int[], INOUT p_data bytea[], INOUT p_ends bytea[], INOUT p_ids bytea[],
    INOUT p_hash_part bigint[]
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    SELECT
        array_agg(u.part_id ORDER BY u.part_id), array_agg(u.n ORDER BY u.part_id),
        array_agg(u.data ORDER BY u.part_id), array_agg(u.ends ORDER BY u.part_id), array_agg(u.ids ORDER BY u.part_id)
    INTO p_part, p_n, p_data, p_ends, p_ids
    FROM (
        SELECT coalesce(m.part_id, s.part_id) AS part_id, s.n, s.data, s.ends, s.ids
        FROM unnest(p_part, p_n, p_data, p_ends, p_ids) AS s (part_id, n, data, ends, ids)
        LEFT JOIN unnest(p_new_part, p_made) AS m (new_part, part_id) ON m.new_part = s.part_id
    ) AS u;
    SELECT array_agg(coalesce(m.part_id, h.part_id) ORDER BY h.ord) INTO p_hash_part
    FROM unnest(p_hash_part) WITH ORDINALITY AS h (part_id, ord)
    LEFT JOIN unnest(p_new_part, p_made) AS m (new_part, part_id) ON m.new_part = h.part_id;
END $$;
COMMENT ON FUNCTION queen.put_made_partitions IS
    'Internal: a batch with the partitions that were made in place of the numbers that stood for them.';

-- The lease of each ack. For an ack without one: the required lease that is live on its cursor, else the nil UUID,
-- which no cursor has.
CREATE OR REPLACE FUNCTION queen.required_leases(
    p_required uuid[], p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[]
) RETURNS uuid[]
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    RETURN (
        SELECT array_agg(coalesce(u.lease, r.lease, '00000000-0000-0000-0000-000000000000') ORDER BY u.ord)
        FROM unnest(p_ack_part, p_ack_grp, p_ack_lease) WITH ORDINALITY AS u (part_id, grp_id, lease, ord)
        LEFT JOIN LATERAL (
            SELECT c.lease, c.ready_at FROM queen.partition_consumers AS c
            WHERE c.part_id = u.part_id AND c.grp_id = u.grp_id ORDER BY c.ver DESC LIMIT 1
        ) AS c ON true
        LEFT JOIN (SELECT DISTINCT n AS lease FROM unnest(p_required) AS n) AS r
            ON r.lease = c.lease AND c.ready_at > queen.clock());
END $$;
COMMENT ON FUNCTION queen.required_leases IS 'Internal: the lease of each ack of a transaction that requires leases.';

-- Locks the rows that acks and a push write, except those of limited queues, which come first.
CREATE OR REPLACE FUNCTION queen.lock_append(
    p_part bigint[], p_limited bigint[], p_ack_part bigint[], p_ack_grp bigint[]
) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_sizes(p_limited);
    END IF;
    PERFORM queen.lock_cursors(p_part, p_ack_part, p_ack_grp);
END $$;
COMMENT ON FUNCTION queen.lock_append IS 'Internal: locks partitions, the sizes of limited queues, and cursors.';

-- Carries out a transaction of any kind: acks and pushes by their procedures, undone if one of them fails.
CREATE OR REPLACE FUNCTION queen.execute_in_steps(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[],
    p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[], p_ack_kind text[], p_ack_first bigint[],
    p_ack_last bigint[], p_ack_hash uuid[], p_ack_error text[], p_required uuid[],
    p_new_part bigint[], p_new_queue text[], p_new_name text[], p_version bigint, p_limited bigint[]
) RETURNS TABLE (
    kind text, part_id bigint, ord int, problem text, first_off bigint, created_at timestamptz, dup_pos int[],
    dup_off bigint[], done_upto bigint, within bigint, exists_upto bigint, released bool, dead bool, ready bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_failed bool := false;
    v_full bool := false;
    v_lease uuid[] := p_ack_lease;
    v_made bigint[];          -- partitions that were made, in the order of p_new_part
BEGIN
    IF p_limited IS NOT NULL THEN
        PERFORM queen.lock_queues(p_limited);
    END IF;
    IF p_again THEN
        -- Not within the part that may be undone: if this sending is refused, the first must not arrive and be carried
        -- out later.
        PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
        INSERT INTO queen.fenced_flushes VALUES (p_flush, clock_timestamp()) ON CONFLICT DO NOTHING;
    END IF;
    BEGIN
        IF p_new_part <> '{}' THEN
            kind := 'made';
            FOR ord, part_id IN
                SELECT p_new_part[r.ord], r.part_id
                FROM queen.resolve_partitions_v1(p_new_queue, p_new_name, true) AS r
            LOOP
                -- Its queue is being deleted at this moment.
                v_failed := v_failed OR part_id IS NULL;
                RETURN NEXT;
                v_made := v_made || part_id;
            END LOOP;
            IF v_failed THEN
                RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
            END IF;
            SELECT * INTO p_part, p_n, p_data, p_ends, p_ids, p_hash_part
            FROM queen.put_made_partitions(p_new_part, v_made, p_part, p_n, p_data, p_ends, p_ids, p_hash_part);
        END IF;
        PERFORM queen.lock_append(p_part, p_limited, p_ack_part, p_ack_grp);

        -- A repeated sending whose first was committed is answered from the log: its acks were accepted then.
        IF p_again AND EXISTS (SELECT 1 FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash)) THEN
            RETURN QUERY
            SELECT 'push', r.part_id, NULL::int, NULL, r.first_off, r.created_at, r.dup_pos, r.dup_off, NULL::bigint,
                NULL::bigint, NULL::bigint, NULL::bool, NULL::bool, NULL::bool
            FROM queen.flushed(p_flush, p_part, p_hash_part, p_hash_pos, p_hash) AS r;
            kind := 'ack';
            ready := true;
            FOR ord IN 1 .. cardinality(p_ack_part) LOOP
                RETURN NEXT;
            END LOOP;
            RETURN;
        END IF;

        IF p_required IS NOT NULL THEN
            v_lease := queen.required_leases(p_required, p_ack_part, p_ack_grp, p_ack_lease);
        END IF;

        -- The pushes come last, so that the acks cannot ack messages that they store. Room that the acks make does not
        -- count for them.
        IF p_limited IS NOT NULL AND coalesce(p_version = (SELECT o.version FROM queen.push_options AS o WHERE o.id), true) THEN
            RETURN QUERY
            SELECT 'push', r.part_id, NULL::int, 'Queue is full', NULL::bigint, NULL::timestamptz, NULL::int[],
                NULL::bigint[], NULL::bigint, NULL::bigint, NULL::bigint, NULL::bool, NULL::bool, NULL::bool
            FROM queen.take_room(p_limited, p_part, p_n) AS r;
            v_full := FOUND;
            v_failed := v_full;
        END IF;
        kind := 'ack';
        FOR ord, problem, first_off, done_upto, within, exists_upto, released, dead, ready IN
            SELECT a.ord, a.problem, a.first_off, a.done_upto, a.within, a.exists_upto, a.released, a.dead, a.ready
            FROM queen.ack_messages_v1(
                p_ack_part, p_ack_grp, v_lease, p_ack_kind, p_ack_first, p_ack_last, p_ack_hash, p_ack_error,
                -- Only completed acks, sent again: the first sending has done what is done.
                NOT (p_again AND p_part = '{}' AND 'c' = ALL(p_ack_kind))) AS a
        LOOP
            v_failed := v_failed OR problem IS NOT NULL OR coalesce(first_off > within, false);
            RETURN NEXT;
        END LOOP;
        IF p_part <> '{}' AND NOT v_full THEN
            kind := 'push';
            problem := NULL;
            FOR part_id, first_off, created_at, dup_pos, dup_off IN
                SELECT u.part_id, u.first_off, u.created_at, u.dup_pos, u.dup_off
                FROM queen.push_messages_v1(
                    p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version, NULL) AS u
            LOOP
                v_failed := v_failed OR first_off IS NULL OR dup_pos IS NOT NULL;
                RETURN NEXT;
            END LOOP;
            v_failed := v_failed OR NOT FOUND;
        END IF;
        IF v_failed THEN
            RAISE EXCEPTION 'undo' USING ERRCODE = 'QN002';
        END IF;
    EXCEPTION WHEN SQLSTATE 'QN002' THEN
        IF v_full THEN
            PERFORM queen.count_each_again(p_limited);
        END IF;
        kind := 'undone';
        RETURN NEXT;
    END;
END $$;
COMMENT ON FUNCTION queen.execute_in_steps IS 'Internal: execute_transaction_v1 for the general case.';
