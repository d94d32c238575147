-- Purpose:   acks messages of a lease in the caller's own transaction, after a pop of SQL or of HTTP. A refused ack is an
--            error, so that nothing that the transaction did for the messages commits without it.
-- Arguments: lease_id      as the pop returned it
--            message_ids   null: all under the lease that are not done
--            status        completed, failed, retry or dlq: as over HTTP
--            error         the text for a dead letter
-- Errors:    55000 the lease has ended, or a message is not under it or is done already; 22023 an unknown status; 0A000
--            the isolation is not READ COMMITTED
-- Locks:     the cursors of the lease, in (part_id, grp_id) order, until the transaction ends; nothing else.
-- Writes:    partition_consumers, dead_letter_queue, open_cursors.
-- Rights:    those of the owner. EXECUTE is that of queen_consumer (subscribe.sql).
CREATE OR REPLACE FUNCTION queen.ack_many(
    lease_id uuid, message_ids uuid[], status text DEFAULT 'completed', error text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_kind CONSTANT text := CASE status
        WHEN 'completed' THEN 'c' WHEN 'failed' THEN 'f' WHEN 'retry' THEN 'r' WHEN 'dlq' THEN 'd' END;
BEGIN
    PERFORM queen.enter();
    IF v_kind IS NULL THEN
        RAISE EXCEPTION 'unknown status: %', coalesce(quote_literal(status), 'NULL') USING
            ERRCODE = 'invalid_parameter_value', HINT = 'It is completed, failed, retry or dlq.';
    END IF;
    PERFORM queen.ack_for_transaction(lease_id, message_ids, v_kind, error);
END $$;
COMMENT ON FUNCTION queen.ack_many IS 'Acks messages of a lease in the caller''s own transaction; NULL: all of them.';

CREATE OR REPLACE FUNCTION queen.ack(
    lease_id uuid, message_id uuid DEFAULT NULL, status text DEFAULT 'completed', error text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM queen.ack_many(lease_id, CASE WHEN message_id IS NOT NULL THEN ARRAY[message_id] END, status, error);
END $$;
COMMENT ON FUNCTION queen.ack IS
    'Acks a message of a lease, or all of them, in the caller''s own transaction. What cannot be acked is an error.';

-- A lease that this transaction has given lives until it ends, because nobody else can have had the messages.
CREATE OR REPLACE FUNCTION queen.ack_for_transaction(p_lease uuid, p_messages uuid[], p_kind text, p_error text)
RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz;
    v_cursor record;
    v_off bigint[];
    v_known int := 0;
BEGIN
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.lease = p_lease ORDER BY c.part_id + 0, c.grp_id FOR UPDATE;
    v_now := queen.clock();
    UPDATE queen.partition_consumers AS c SET ready_at = v_now + make_interval(secs => o.seconds), ver = c.ver + 1
    FROM queen.open_cursors AS o
    WHERE c.lease = p_lease AND c.ready_at <= v_now AND o.xid = pg_current_xact_id_if_assigned()
        AND o.part_id = c.part_id AND o.grp_id = c.grp_id AND o.seconds IS NOT NULL;
    FOR v_cursor IN
        SELECT c.part_id, c.grp_id, c.ver, c.acked, c.upto,
            coalesce(c.ahead, '{}') + '{}'::int8multirange AS ahead
        FROM queen.partition_consumers AS c
        WHERE c.lease = p_lease AND c.ready_at > v_now ORDER BY c.part_id + 0, c.grp_id
    LOOP
        SELECT array_agg(DISTINCT o.off) INTO v_off
        FROM (
            SELECT ('x' || right(m::text, 12))::bit(48)::bigint AS off FROM unnest(p_messages) AS m
            WHERE queen.message_uuid(v_cursor.part_id, ('x' || right(m::text, 12))::bit(48)::bigint) = m
            UNION ALL
            SELECT g.off FROM generate_series(v_cursor.acked + 1, v_cursor.upto) AS g (off)
            WHERE p_messages IS NULL AND NOT v_cursor.ahead @> g.off
        ) AS o;
        v_known := v_known + coalesce(cardinality(v_off), 0);
        PERFORM queen.ack_open_cursor(
            v_cursor.part_id, v_cursor.grp_id, v_cursor.ver, p_lease, p_kind, v_off, p_error, v_now)
        WHERE v_off IS NOT NULL;
    END LOOP;
    IF v_known = 0 AND NOT EXISTS (
        SELECT 1 FROM queen.partition_consumers AS c WHERE c.lease = p_lease AND c.ready_at > v_now) THEN
        RAISE EXCEPTION 'Invalid or expired lease: %', coalesce(p_lease::text, 'NULL') USING
            ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Roll back: the messages are, or will be, delivered again, or they are done.';
    ELSIF v_known < (SELECT count(*) FROM (SELECT DISTINCT unnest(p_messages)) AS m) THEN
        RAISE EXCEPTION 'Message not delivered under this lease: lease %, messages %', p_lease, p_messages USING
            ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Name messages by the message_id that the pop returned.';
    END IF;
END $$;
COMMENT ON FUNCTION queen.ack_for_transaction IS 'Internal: acks messages of a lease in a transaction of SQL.';

CREATE OR REPLACE FUNCTION queen.ack_open_cursor(
    p_part bigint, p_grp bigint, p_ver bigint, p_lease uuid, p_kind text, p_off bigint[], p_error text,
    p_now timestamptz
) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_refused record;
    v_number CONSTANT int := cardinality(p_off);
BEGIN
    SELECT a.ord, CASE
        WHEN a.problem IS NOT NULL THEN a.problem
        WHEN p_off[a.ord] <= a.done_upto OR p_off[a.ord] = ANY(a.also_done) THEN 'Message already completed'
        ELSE 'Message not delivered under this lease'
    END AS problem INTO v_refused
    FROM queen.ack_cursor(
        p_part, p_grp, p_ver, p_now, false, ARRAY(SELECT generate_series(1, v_number)), array_fill(p_lease, ARRAY[v_number]),
        array_fill(p_kind, ARRAY[v_number]), p_off, p_off, array_fill(p_error, ARRAY[v_number]), false) AS a
    WHERE a.problem IS NOT NULL OR p_off[a.ord] <= a.done_upto OR p_off[a.ord] = ANY(a.also_done)
        OR p_off[a.ord] > a.within
    ORDER BY a.ord LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%: %', v_refused.problem, queen.message_uuid(p_part, p_off[v_refused.ord]) USING
            ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO queen.open_cursors AS o (part_id, grp_id, held) VALUES (p_part, p_grp, true)
    ON CONFLICT ON CONSTRAINT open_cursors_pkey DO UPDATE SET held = true;
END $$;
COMMENT ON FUNCTION queen.ack_open_cursor IS 'Internal: acks messages of one cursor in a transaction of SQL.';
