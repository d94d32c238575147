-- Purpose:   the next timers that are due, in the order of their times.
-- Arguments: p_from   nothing is due before this time, as far as the caller knows; null: it does not know. Deleted rows
--                     before it, which vacuum may not remove yet, are not read again.
--            p_messages, p_bytes   the most messages, and bytes of messages (one message at least)
--            p_held_queue, p_held_partition   partitions that are held back: their timers are left out
--            p_ahead  seconds in which the caller will look again in any case
-- Returns:   one row per timer; queue is null if the queue was deleted. Then a row with seq null; its due_in are the
--            seconds until the next timer is due, if that is within p_ahead (else null).
CREATE OR REPLACE FUNCTION queen.read_timers_v1(
    p_from timestamptz, p_messages int, p_bytes int, p_ahead float8, p_held_queue bigint[], p_held_partition text[]
)
RETURNS TABLE (
    deliver_at timestamptz, seq bigint, queue_id bigint, queue text, partition text, transaction_id text, message text,
    due_in float8
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_from timestamptz := coalesce(p_from, '-infinity');
    v_bytes bigint := 0;
    v_row record;
BEGIN
    FOR v_row IN
        SELECT t.*, q.name
        FROM (
            SELECT * FROM queen.timers AS d
            WHERE d.deliver_at >= v_from AND d.deliver_at <= v_now
                AND (p_held_queue = '{}' OR NOT EXISTS (
                    SELECT 1 FROM unnest(p_held_queue, p_held_partition) AS h (queue_id, partition)
                    WHERE h.queue_id = d.queue_id AND h.partition = d.partition
                ))
            ORDER BY d.deliver_at, d.seq LIMIT p_messages
        ) AS t
        LEFT JOIN queen.queues AS q ON q.id = ANY(ARRAY[t.queue_id])
        ORDER BY t.deliver_at, t.seq
    LOOP
        v_bytes := v_bytes + octet_length(v_row.message);
        EXIT WHEN v_bytes > p_bytes AND seq IS NOT NULL;
        deliver_at := v_row.deliver_at; seq := v_row.seq; queue_id := v_row.queue_id; queue := v_row.name;
        partition := v_row.partition;
        transaction_id := v_row.transaction_id; message := v_row.message;
        RETURN NEXT;
    END LOOP;
    deliver_at := NULL; seq := NULL; queue_id := NULL; queue := NULL;
    partition := NULL; transaction_id := NULL; message := NULL;
    due_in := extract(epoch FROM (
        SELECT min(t.deliver_at) FROM queen.timers AS t
        WHERE t.deliver_at > v_now AND t.deliver_at <= v_now + make_interval(secs => p_ahead)) - v_now);
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION queen.read_timers_v1 IS 'The timers that are due, in the order of their times.';

-- Purpose:   moves timers that read_timers_v1 has returned into the log: all or none, and never twice.
-- Arguments: p_at, p_seq   the timers
--            the others   those of push_messages_v1, without messages of deleted queues
-- Returns:   one row: whether they were moved; the partitions that are unknown (null: none), and whether the push options
--            have changed. If they were not moved nothing was changed: the messages must be laid out again, or, if both
--            say nothing, be read again, because some were moved, changed or cancelled, or are being so.
-- Locks:     the timers, with SKIP LOCKED; then those of push_messages_v1, for which it waits a quarter of a second.
-- Writes:    timers, queue_sizes, and what push_messages_v1 writes.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION queen.move_timers_v1(
    p_at timestamptz[], p_seq bigint[], p_flush uuid,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint,
    OUT moved bool, OUT unknown bigint[], OUT stale bool
)
LANGUAGE plpgsql
SET lock_timeout = '250ms'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_locked int;
BEGIN
    moved := false;
    stale := false;
    SELECT count(*) INTO v_locked
    FROM unnest(p_at, p_seq) AS u (at, seq)
    CROSS JOIN LATERAL (
        SELECT 1 FROM queen.timers AS t WHERE t.deliver_at = u.at AND t.seq = u.seq FOR UPDATE SKIP LOCKED
    ) AS l;
    IF v_locked < cardinality(p_seq) THEN
        RETURN;
    END IF;
    IF p_part <> '{}' THEN
        SELECT a.unknown, a.stale INTO unknown, stale
        FROM queen.append_accepted(
            p_flush, NULL, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version) AS a;
        IF stale OR unknown IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    DELETE FROM queen.timers AS t USING unnest(p_at, p_seq) AS u (at, seq)
    WHERE t.deliver_at = ANY(ARRAY[u.at]) AND t.seq = u.seq;
    moved := true;
END $$;
COMMENT ON FUNCTION queen.move_timers_v1 IS 'Moves timers that are due into the log: all or none, and never twice.';
