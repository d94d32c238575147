-- Purpose:   the next messages of the outbox: rows of committed transactions, in the order of transactions, and of a
--            transaction in the order of its pushes. A transaction that began after another had committed comes after it.
-- Arguments: p_messages, p_bytes   the most messages, and bytes of payloads (one message at least)
-- Returns:   one row per message; queue is null if the queue was deleted; held: its partition is held back. Then a row with
--            seq null; its done says whether these are all that target shows. moves, target, done are for move_outbox_v1.
--            No row: nothing waits.
-- Reads:     only what is visible in a snapshot and was not in that of the last move, so that rows that are deleted and not
--            vacuumed yet, while another transaction is open for long, are not read again and again (as PgQ's ticks do).
CREATE OR REPLACE FUNCTION queen.read_outbox_v1(p_messages int, p_bytes bigint)
RETURNS TABLE (
    moves bigint, target text, done bool, xid text, seq bigint, queue_id bigint, queue text, partition text,
    transaction_id text, payload text, held bool
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_at queen.outbox_position;
    v_target pg_snapshot;
    v_range record;
    v_row record;
    v_rows bigint := 0;
    v_bytes bigint := 0;
BEGIN
    SELECT * INTO v_at FROM queen.outbox_position;
    v_target := coalesce(v_at.target, pg_current_snapshot());
    done := true;
    FOR v_range IN SELECT r.from_xid, r.to_xid FROM queen.outbox_ranges(v_at.seen, v_target) AS r LOOP
        FOR v_row IN
            SELECT o.xid, o.seq, o.queue_id, q.name, o.partition, o.transaction_id, o.payload, h.tries IS NOT NULL AS held
            FROM queen.outbox AS o
            LEFT JOIN queen.queues AS q ON q.id = o.queue_id
            LEFT JOIN queen.outbox_held_partitions AS h ON h.queue_id = o.queue_id AND h.partition = o.partition
            WHERE (o.xid, o.seq) >= (v_range.from_xid, 0) AND o.xid <= v_range.to_xid
                AND (v_at.last_xid IS NULL OR (o.xid, o.seq) > (v_at.last_xid, v_at.last_seq))
                AND pg_visible_in_snapshot(o.xid, v_target)
            ORDER BY o.xid, o.seq
        LOOP
            v_bytes := v_bytes + octet_length(v_row.payload);
            IF v_rows > 0 AND (v_rows >= p_messages OR v_bytes > p_bytes) THEN
                done := false;
                EXIT;
            END IF;
            v_rows := v_rows + 1;
            moves := v_at.moves; target := v_target::text;
            xid := v_row.xid::text; seq := v_row.seq; queue_id := v_row.queue_id; queue := v_row.name;
            partition := v_row.partition; transaction_id := v_row.transaction_id; payload := v_row.payload;
            held := v_row.held;
            RETURN NEXT;
        END LOOP;
        EXIT WHEN NOT done;
    END LOOP;
    IF v_rows > 0 THEN
        xid := NULL; seq := NULL; queue_id := NULL; queue := NULL; partition := NULL; transaction_id := NULL;
        payload := NULL; held := NULL;
        RETURN NEXT;
    END IF;
END $$;
COMMENT ON FUNCTION queen.read_outbox_v1 IS 'The next messages of the outbox, in the order of their transactions.';

-- Purpose:   moves the messages that read_outbox_v1 has returned into the log: all or none, and never twice. Those of
--            partitions that are held back go to outbox_held.
-- Arguments: p_moves, p_target, p_done, p_xid, p_seq, p_rows   what read_outbox_v1 has returned: xid and seq of the last
--            message, and how many messages there were
--            p_hold_queue, p_hold_partition, p_reason   partitions that are held back from now on, and why
--            the others   those of push_messages_v1, without messages of deleted queues and of held back partitions
-- Returns:   one row: whether they were moved; the partitions that are unknown (null: none), and whether the push options
--            have changed. If they were not moved nothing was changed: the messages must be laid out again, or, if both
--            say nothing, be read again, because another worker has moved messages, or does.
-- Locks:     outbox_position; then those of push_messages_v1, for which it waits a quarter of a second.
-- Writes:    outbox, outbox_position, outbox_held, outbox_held_partitions, queue_sizes, and what push_messages_v1 writes.
CREATE OR REPLACE FUNCTION queen.move_outbox_v1(
    p_moves bigint, p_target text, p_done bool, p_xid text, p_seq bigint, p_rows int,
    p_hold_queue bigint[], p_hold_partition text[], p_reason text, p_flush uuid,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint,
    OUT moved bool, OUT unknown bigint[], OUT stale bool
)
LANGUAGE plpgsql
SET lock_timeout = '250ms'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_at queen.outbox_position;
    v_target pg_snapshot := p_target::pg_snapshot;
    v_range record;
    v_deleted int;
    v_all int := 0;
BEGIN
    moved := false;
    stale := false;
    SELECT * INTO v_at FROM queen.outbox_position FOR UPDATE SKIP LOCKED;
    IF v_at.moves IS DISTINCT FROM p_moves THEN
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
    INSERT INTO queen.outbox_held_partitions (queue_id, partition, reason)
    SELECT u.queue_id, u.partition, p_reason FROM unnest(p_hold_queue, p_hold_partition) AS u (queue_id, partition)
    ON CONFLICT DO NOTHING;
    FOR v_range IN SELECT r.from_xid, r.to_xid FROM queen.outbox_ranges(v_at.seen, v_target) AS r LOOP
        WITH d AS (
            DELETE FROM queen.outbox AS o
            WHERE (o.xid, o.seq) >= (v_range.from_xid, 0) AND o.xid <= v_range.to_xid
                AND (v_at.last_xid IS NULL OR (o.xid, o.seq) > (v_at.last_xid, v_at.last_seq))
                AND pg_visible_in_snapshot(o.xid, v_target)
                AND (o.xid, o.seq) <= (p_xid::xid8, p_seq)
            RETURNING o.*
        ), held AS (
            INSERT INTO queen.outbox_held (queue_id, partition, transaction_id, payload, pushed_at)
            SELECT d.queue_id, d.partition, d.transaction_id, d.payload, d.pushed_at
            FROM d JOIN queen.outbox_held_partitions AS h ON h.queue_id = d.queue_id AND h.partition = d.partition
            ORDER BY d.xid, d.seq
        )
        SELECT count(*) INTO v_deleted FROM d;
        v_all := v_all + v_deleted;
    END LOOP;
    IF v_all <> p_rows THEN
        RAISE EXCEPTION '% rows of the outbox were read, and % are there', p_rows, v_all USING ERRCODE = 'QN004';
    END IF;
    UPDATE queen.outbox_position AS p
    SET moves = p.moves + 1,
        seen = CASE WHEN p_done THEN v_target ELSE p.seen END,
        target = CASE WHEN NOT p_done THEN v_target END,
        last_xid = CASE WHEN NOT p_done THEN p_xid::xid8 END,
        last_seq = CASE WHEN NOT p_done THEN p_seq END;
    moved := true;
END $$;
COMMENT ON FUNCTION queen.move_outbox_v1 IS 'Moves messages of the outbox into the log: all or none, and never twice.';

-- Purpose:   makes the next read look at all rows. A worker that begins to move messages calls it, because the database may
--            have been restored from a dump: its transactions had other numbers, and some are not given yet.
CREATE OR REPLACE FUNCTION queen.restart_outbox_v1() RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    UPDATE queen.outbox AS o SET xid = '0' WHERE o.xid >= pg_snapshot_xmax(pg_current_snapshot());
    UPDATE queen.outbox_position SET moves = moves + 1, seen = NULL, target = NULL, last_xid = NULL, last_seq = NULL;
END;
COMMENT ON FUNCTION queen.restart_outbox_v1 IS 'Makes the next read of the outbox look at all rows.';
