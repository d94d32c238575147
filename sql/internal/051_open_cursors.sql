-- Pops and acks in a transaction of their caller, which may stay open for long (ADR 59). Until it ends they hold the cursors
-- that they have changed, and nothing else: no partition, no tick of queen.write_clock, no cursor that they only looked at.

-- What each call of the caller's role begins with. In other isolation levels a later statement would not see what was
-- committed meanwhile. And the caller must not set the clock, by which leases of others would end.
CREATE OR REPLACE FUNCTION queen.enter() RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'queen.pop and queen.ack need the isolation level READ COMMITTED, and this transaction has %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'feature_not_supported',
            HINT = 'Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    IF current_setting('queen.clock', true) <> '' THEN
        PERFORM set_config('queen.clock', '', true);
    END IF;
END $$;
COMMENT ON FUNCTION queen.enter IS 'Internal: refuses isolation levels in which pops of SQL would be wrong.';

-- The partitions of cursors of a group that are ready, longest first, at most p_limit; with p_free without those that
-- others have locked. The search takes locks on ticks that
-- are over (queen.closed): they are given back, by a subtransaction that is undone, and what was learnt is kept.
CREATE OR REPLACE FUNCTION queen.ready_for_transaction(p_grp bigint, p_limit int, p_free bool, p_now timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_low timestamptz;
    v_mark text;
    v_closed text;
    v_parts bigint[];
    v_passed bigint[];
BEGIN
    BEGIN
        v_low := queen.low_water(p_grp, p_now);
        v_mark := current_setting(queen.name_of_mark(p_grp), true);
        v_closed := current_setting('queen.closed', true);
        IF p_free THEN
            SELECT array_agg(u.part_id) INTO v_parts
            FROM (
                SELECT c.part_id FROM queen.partition_consumers AS c
                WHERE c.grp_id = p_grp AND c.ready_at BETWEEN v_low AND p_now AND c.ready_at < 'infinity'
                ORDER BY c.ready_at, c.part_id + 0 LIMIT p_limit
                FOR UPDATE SKIP LOCKED
            ) AS u;
        END IF;
        RAISE SQLSTATE 'QN005';
    EXCEPTION WHEN SQLSTATE 'QN005' THEN
        PERFORM set_config(queen.name_of_mark(p_grp), v_mark, false) WHERE v_mark <> '';
        PERFORM set_config('queen.closed', v_closed, false) WHERE v_closed <> '';
    END;
    v_passed := queen.passed_over(p_grp);
    IF NOT p_free THEN
        SELECT array_agg(u.part_id) INTO v_parts
        FROM (
            SELECT c.part_id FROM queen.partition_consumers AS c
            WHERE c.grp_id = p_grp AND c.ready_at BETWEEN v_low AND p_now AND c.ready_at < 'infinity'
            ORDER BY c.ready_at, c.part_id + 0 LIMIT p_limit
        ) AS u;
    END IF;
    RETURN v_passed || coalesce(v_parts, '{}');
END $$;
COMMENT ON FUNCTION queen.ready_for_transaction IS 'Internal: partitions of a group that are ready, for a pop of SQL.';

-- Leases the next messages of one cursor, and reads them. If there are none, another transaction has it, or one of the
-- messages cannot be returned (refused), the lock on it is given back. idle: nothing is visible.
CREATE OR REPLACE FUNCTION queen.claim_for_transaction(
    p_grp bigint, p_part bigint, p_queue queen.queues, p_messages int, p_bytes bigint, p_must bool, p_lease uuid,
    p_seconds int, p_now timestamptz,
    OUT popped queen.popped[], OUT idle bool, OUT messages int, OUT bytes bigint, OUT refused text
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_cursor queen.partition_consumers;
    v_run record;
    claimed queen.claims;
BEGIN
    messages := 0;
    bytes := 0;
    idle := false;
    SELECT * INTO v_cursor FROM queen.lock_ready(p_grp, p_part, 1, p_now);
    -- A lease that this transaction has given lives until it ends.
    IF FOUND AND NOT (v_cursor.lease IS NOT NULL AND EXISTS (
        SELECT 1 FROM queen.open_cursors AS o
        WHERE o.xid = pg_current_xact_id_if_assigned() AND o.part_id = p_part AND o.grp_id = p_grp AND o.seconds IS NOT NULL
    )) THEN
        SELECT * INTO v_run FROM queen.next_run(
            v_cursor.part_id, v_cursor.acked, v_cursor.ahead, p_queue.delayed_processing, p_queue.window_buffer,
            p_messages, p_bytes, p_must, p_now);
        idle := v_run.messages = 0 AND NOT v_run.full_up;
        messages := v_run.messages;
        bytes := CASE WHEN v_run.full_up THEN p_bytes ELSE v_run.bytes END;
    END IF;
    IF messages = 0 THEN
        RAISE SQLSTATE 'QN005';
    END IF;
    claimed.pop := ARRAY[1];
    claimed.part_id := ARRAY[p_part];
    claimed.grp_id := ARRAY[p_grp];
    claimed.ver := ARRAY[v_cursor.ver];
    claimed.acked := ARRAY[v_cursor.acked];
    claimed.upto := ARRAY[v_run.upto];
    claimed.ahead := ARRAY[v_cursor.ahead];
    claimed.seen := ARRAY[v_cursor.seen];
    claimed.attempt := ARRAY[v_cursor.attempts + 1];
    claimed.ready_at := ARRAY[p_now + make_interval(secs => p_seconds)];
    PERFORM queen.write_claims(claimed, ARRAY[p_lease], p_now);
    INSERT INTO queen.open_cursors AS o (part_id, grp_id, seconds, held) VALUES (p_part, p_grp, p_seconds, true)
    ON CONFLICT ON CONSTRAINT open_cursors_pkey DO UPDATE SET seconds = excluded.seconds, held = true;
    popped := queen.claimed_messages(p_queue.name, p_part, claimed, p_lease);
EXCEPTION
    WHEN SQLSTATE 'QN005' THEN
        messages := 0;
    WHEN feature_not_supported THEN
        messages := 0;
        bytes := 0;
        refused := sqlerrm;
END $$;
COMMENT ON FUNCTION queen.claim_for_transaction IS 'Internal: leases messages of a cursor to a pop of SQL.';

-- What is left to do with a cursor when a transaction commits: its lease begins; it is ready from now on, not from a time that
-- low-water marks have passed; or it is parked or postponed, because it has nothing to deliver.
CREATE OR REPLACE FUNCTION queen.settle_cursor() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz;
    v_open queen.open_cursors;
    v_cursor queen.partition_consumers;
    v_queue queen.queues;
    v_run record;
BEGIN
    PERFORM queen.enter();
    v_now := queen.write_clock();
    DELETE FROM queen.open_cursors AS o
    WHERE o.xid = NEW.xid AND o.part_id = NEW.part_id AND o.grp_id = NEW.grp_id RETURNING * INTO v_open;
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.part_id = NEW.part_id AND c.grp_id = NEW.grp_id ORDER BY c.ver DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT * INTO v_cursor FROM queen.partition_consumers AS c
    WHERE c.part_id = NEW.part_id AND c.grp_id = NEW.grp_id ORDER BY c.ver DESC LIMIT 1;
    IF v_cursor.lease IS NOT NULL AND v_open.seconds IS NOT NULL THEN
        UPDATE queen.partition_consumers AS c
        SET ready_at = v_now + make_interval(secs => v_open.seconds), ver = c.ver + 1
        WHERE c.part_id = NEW.part_id AND c.grp_id = NEW.grp_id AND c.ver = v_cursor.ver;
    ELSIF v_cursor.ready_at <= v_now THEN
        SELECT q.* INTO v_queue FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id
        WHERE g.id = NEW.grp_id;
        SELECT * INTO v_run FROM queen.next_run(
            v_cursor.part_id, v_cursor.acked, v_cursor.ahead, v_queue.delayed_processing, v_queue.window_buffer, 1,
            1, true, v_now);
        IF v_open.held THEN
            UPDATE queen.partition_consumers AS c SET ready_at = v_now, ver = c.ver + 1
            WHERE c.part_id = NEW.part_id AND c.grp_id = NEW.grp_id AND c.ver = v_cursor.ver;
            v_cursor.ver := v_cursor.ver + 1;
        END IF;
        IF v_run.messages = 0 THEN
            PERFORM queen.rest(
                ARRAY[NEW.part_id], ARRAY[NEW.grp_id], ARRAY[v_cursor.ver], ARRAY[v_run.again_at],
                ARRAY[v_queue.delayed_processing], ARRAY[v_queue.window_buffer], v_now);
        END IF;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.settle_cursor IS 'Internal: what is left to do with a cursor when a transaction of SQL commits.';
