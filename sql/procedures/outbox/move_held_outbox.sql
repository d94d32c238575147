-- Purpose:   the next messages of one partition that is held back and whose next try is due; the one that is due longest.
-- Arguments: p_messages, p_bytes   the most messages, and bytes of payloads (one message at least)
-- Returns:   one row per message, in the order in which they go into the log, or one with seq null if there is none; no row:
--            no partition is due. queue is null if it was deleted; moved_seq is for move_held_outbox_v1; done: these are all.
--            A time of a try that is too far ahead is of a clock that has stepped back since.
--            After tries that failed there are fewer messages, in the end one.
CREATE OR REPLACE FUNCTION queen.read_held_outbox_v1(p_messages int, p_bytes bigint)
RETURNS TABLE (
    queue_id bigint, partition text, queue text, tries int, moved_seq bigint, seq bigint, transaction_id text,
    fields text, payload text, done bool
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_due queen.outbox_held_partitions;
    v_row record;
    v_rows bigint := 0;
    v_bytes bigint := 0;
BEGIN
    SELECT * INTO v_due FROM queen.outbox_held_partitions AS h
    WHERE h.retry_at <= queen.clock() AND EXISTS (
        SELECT 1 FROM queen.outbox_held AS o
        WHERE o.queue_id = h.queue_id AND o.partition = h.partition AND o.seq > h.moved_seq
    )
    ORDER BY h.retry_at LIMIT 1;
    IF v_due.queue_id IS NULL THEN
        SELECT * INTO v_due FROM queen.outbox_held_partitions AS h
        WHERE h.retry_at > queen.clock() + interval '61 s' ORDER BY h.retry_at DESC LIMIT 1;
    END IF;
    IF v_due.queue_id IS NULL THEN
        RETURN;
    END IF;
    queue_id := v_due.queue_id; partition := v_due.partition; tries := v_due.tries; moved_seq := v_due.moved_seq;
    queue := (SELECT q.name FROM queen.queues AS q WHERE q.id = v_due.queue_id);
    done := true;
    FOR v_row IN
        SELECT o.seq, o.transaction_id, o.fields, o.payload FROM queen.outbox_held AS o
        WHERE o.queue_id = v_due.queue_id AND o.partition = v_due.partition AND o.seq > v_due.moved_seq
        ORDER BY o.seq
    LOOP
        v_bytes := v_bytes + octet_length(v_row.payload) + coalesce(octet_length(v_row.fields), 0);
        done := v_rows = 0 OR (v_rows < p_messages >> least(2 * v_due.tries, 30) AND v_bytes <= p_bytes);
        EXIT WHEN NOT done;
        IF v_rows > 0 THEN
            RETURN NEXT;
        END IF;
        v_rows := v_rows + 1;
        seq := v_row.seq; transaction_id := v_row.transaction_id; fields := v_row.fields;
        payload := v_row.payload;
    END LOOP;
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION queen.read_held_outbox_v1 IS
    'The next messages of a partition of the outbox that is held back, if a try is due.';

-- Purpose:   moves the messages that read_held_outbox_v1 has returned into the log: all or none, and never twice.
-- Arguments: p_queue_id, p_partition, p_moved_seq   what read_held_outbox_v1 has returned
--            p_seq        seq of the last message
--            the others   those of push_messages_v1; none if the queue was deleted
-- Returns:   as move_outbox_v1.
-- Locks:     the row of outbox_held_partitions; then those of push_messages_v1, for which it waits a quarter of a second.
-- Writes:    outbox_held, outbox_held_partitions, queue_sizes, and what push_messages_v1 writes.
CREATE OR REPLACE FUNCTION queen.move_held_outbox_v1(
    p_queue_id bigint, p_partition text, p_moved_seq bigint, p_seq bigint, p_flush uuid,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint,
    OUT moved bool, OUT unknown bigint[], OUT stale bool
)
LANGUAGE plpgsql
SET lock_timeout = '250ms'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    stale := false;
    moved := EXISTS (
        SELECT 1 FROM queen.outbox_held_partitions AS h
        WHERE h.queue_id = p_queue_id AND h.partition = p_partition AND h.moved_seq = p_moved_seq
        FOR UPDATE SKIP LOCKED
    );
    IF NOT moved THEN
        RETURN;
    END IF;
    IF p_part <> '{}' THEN
        SELECT a.unknown, a.stale INTO unknown, stale
        FROM queen.append_accepted(
            p_flush, NULL, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version) AS a;
        IF stale OR unknown IS NOT NULL THEN
            moved := false;
            RETURN;
        END IF;
    END IF;
    DELETE FROM queen.outbox_held AS o
    WHERE o.queue_id = p_queue_id AND o.partition = p_partition AND o.seq > p_moved_seq AND o.seq <= p_seq;
    UPDATE queen.outbox_held_partitions AS h SET moved_seq = p_seq, retry_at = queen.clock(), tries = 0
    WHERE h.queue_id = p_queue_id AND h.partition = p_partition;
END $$;
COMMENT ON FUNCTION queen.move_held_outbox_v1 IS
    'Moves messages of the outbox that were held back into the log: all or none, and never twice.';

-- Purpose:   after a try that failed: the next one comes after a pause of 1 s, then 2 s, 4 s, … up to a minute.
CREATE OR REPLACE FUNCTION queen.postpone_held_outbox_v1(p_queue_id bigint, p_partition text, p_reason text)
RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    UPDATE queen.outbox_held_partitions AS h
    SET reason = p_reason, tries = h.tries + 1,
        retry_at = queen.clock() + make_interval(secs => least(60, 2 ^ least(h.tries, 6)))
    WHERE h.queue_id = p_queue_id AND h.partition = p_partition;
END;
COMMENT ON FUNCTION queen.postpone_held_outbox_v1 IS 'Notes that a partition of the outbox is still held back, and why.';

-- Purpose:   ends holding back the partitions of which nothing waits any more. Returns: how many.
-- Locks:     outbox_position, so that no move brings more meanwhile. What was read before must be read again, which is why
--            all are let go at once.
-- Writes:    outbox_position, outbox_held_partitions.
CREATE OR REPLACE FUNCTION queen.let_go_outbox_v1() RETURNS bigint
LANGUAGE plpgsql
SET lock_timeout = '250ms'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_number bigint;
BEGIN
    PERFORM 1 FROM queen.outbox_position AS p WHERE p.id FOR UPDATE;
    WITH idle AS (
        SELECT h.queue_id, h.partition FROM queen.outbox_held_partitions AS h
        WHERE NOT EXISTS (
            SELECT 1 FROM queen.outbox_held AS o
            WHERE o.queue_id = h.queue_id AND o.partition = h.partition AND o.seq > h.moved_seq
        )
        FOR UPDATE SKIP LOCKED
    )
    DELETE FROM queen.outbox_held_partitions AS h USING idle AS i
    WHERE h.queue_id = i.queue_id AND h.partition = i.partition;
    GET DIAGNOSTICS v_number = ROW_COUNT;
    IF v_number > 0 THEN
        UPDATE queen.outbox_position AS p SET moves = p.moves + 1 WHERE p.id;
    END IF;
    RETURN v_number;
END $$;
COMMENT ON FUNCTION queen.let_go_outbox_v1 IS
    'Ends holding back the partitions of the outbox of which nothing waits any more.';
