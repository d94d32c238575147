-- Purpose:   sets and cancels timers: each element is one operation, on the timer of a queue with a key.
-- Arguments: p_op     schedule (sets the timer, or replaces it), cancel, fire (makes it due now)
--            p_delay  of schedule: seconds from now; null: p_at is the time; what is past is now
--            p_partition, p_transaction_id, p_message   of schedule: the message
--            p_version   of queen.push_options, under which the messages were encrypted
-- Returns:   one row per element: ord from 1, the verdict, and transaction id and time of the timer (null: there was none).
--            Verdicts: scheduled, rescheduled (there was one); cancelled; absent; too_late (it has entered the log while
--            the call waited for it). No row: the options have changed, or a queue was deleted; nothing was done.
-- Locks:     queues FOR KEY SHARE; rows of timers in the order of (queue_id, key). The move of timers waits for none of
--            them.
-- Writes:    timers; queues that are missing for a schedule.
CREATE OR REPLACE FUNCTION queen.change_timers_v1(
    p_op text[], p_queue text[], p_key text[], p_partition text[], p_transaction_id text[], p_delay float8[],
    p_at timestamptz[], p_message text[], p_version bigint
) RETURNS TABLE (ord int, status text, transaction_id text, deliver_at timestamptz)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_one record;
    v_timer queen.timers;
    v_made bool;
    v_queues text[];
    v_locked int;
BEGIN
    IF (SELECT o.version FROM queen.push_options AS o WHERE o.id) <> p_version THEN
        RETURN;
    END IF;
    v_queues := ARRAY(SELECT DISTINCT u.queue FROM unnest(p_op, p_queue) AS u (op, queue) WHERE u.op = 'schedule');
    PERFORM queen.make_queues(v_queues);
    -- A queue that is deleted meanwhile is deleted with these timers, or is made again.
    PERFORM 1 FROM queen.queues AS q WHERE q.name = ANY(v_queues) ORDER BY q.id FOR KEY SHARE;
    GET DIAGNOSTICS v_locked = ROW_COUNT;
    IF v_locked < cardinality(v_queues) THEN
        RETURN;
    END IF;
    FOR v_one IN
        SELECT u.*, q.id AS queue_id
        FROM unnest(p_op, p_queue, p_key, p_partition, p_transaction_id, p_delay, p_at, p_message) WITH ORDINALITY
            AS u (op, queue, key, partition, transaction_id, delay, at, message, ord)
        LEFT JOIN queen.queues AS q ON q.name = ANY(ARRAY[u.queue])
        ORDER BY q.id, u.key, u.ord
    LOOP
        v_timer := NULL;
        IF v_one.op = 'schedule' THEN
            INSERT INTO queen.timers AS t (deliver_at, queue_id, key, partition, transaction_id, asked_at, message)
            VALUES (
                greatest(v_now, v_one.at, v_now + make_interval(secs => v_one.delay)), v_one.queue_id, v_one.key,
                v_one.partition, v_one.transaction_id, CASE WHEN v_one.delay IS NOT NULL THEN v_now END, v_one.message)
            ON CONFLICT (queue_id, key) DO UPDATE
            SET deliver_at = excluded.deliver_at, seq = DEFAULT, partition = excluded.partition,
                transaction_id = excluded.transaction_id, asked_at = excluded.asked_at, message = excluded.message
            RETURNING t.xmax = 0, t.deliver_at, t.transaction_id
            INTO v_made, v_timer.deliver_at, v_timer.transaction_id;
            status := CASE WHEN v_made THEN 'scheduled' ELSE 'rescheduled' END;
        ELSE
            SELECT * INTO v_timer FROM queen.timers AS t WHERE t.queue_id = v_one.queue_id AND t.key = v_one.key;
            IF NOT FOUND THEN
                status := 'absent';
            ELSIF v_one.op = 'cancel' THEN
                DELETE FROM queen.timers AS t WHERE t.queue_id = v_one.queue_id AND t.key = v_one.key;
                status := CASE WHEN FOUND THEN 'cancelled' ELSE queen.verdict_on_gone(v_timer) END;
            ELSE
                UPDATE queen.timers AS t SET deliver_at = least(t.deliver_at, v_now), seq = DEFAULT
                WHERE t.queue_id = v_one.queue_id AND t.key = v_one.key RETURNING t.deliver_at INTO v_timer.deliver_at;
                status := CASE WHEN FOUND THEN 'rescheduled' ELSE queen.verdict_on_gone(v_timer) END;
            END IF;
        END IF;
        ord := v_one.ord;
        transaction_id := v_timer.transaction_id;
        deliver_at := v_timer.deliver_at;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.change_timers_v1 IS 'Sets, cancels and fires timers.';

-- What became of a timer that was there a moment ago: its message is in the log, or another call has cancelled it.
CREATE OR REPLACE FUNCTION queen.verdict_on_gone(p_timer queen.timers) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN CASE WHEN EXISTS (
        SELECT 1
        FROM queen.partitions AS p
        JOIN queen.transaction_ids AS t
            ON t.part_id = ANY(ARRAY[p.id]) AND t.hash = queen.transaction_hash(p_timer.transaction_id)
        WHERE p.queue_id = p_timer.queue_id AND p.name = p_timer.partition
    ) THEN 'too_late' ELSE 'absent' END;
END $$;
COMMENT ON FUNCTION queen.verdict_on_gone IS 'Internal: what became of a timer that is gone.';
