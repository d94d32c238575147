-- Purpose:   the next messages of the outbox: rows of committed transactions, in the order of transactions, and of a
--            transaction in the order of its pushes. A transaction that began after another had committed comes after it.
-- Arguments: p_messages, p_bytes   the most messages, and bytes of payloads (one message at least)
-- Returns:   one row per call of queen.push, with its messages; queue is null if the queue was deleted; held: those of its
--            partitions that are held back. With what move_outbox_v1 needs: moves; target (in the first row); the place of the
--            row, of which that of the last one counts; and whether these are all that target shows (done). No row: nothing
--            waits.
-- Reads:     only what is visible in a snapshot and was not in that of the last move, so that rows that are deleted and not
--            vacuumed yet, while another transaction is open for long, are not read again and again (as PgQ's ticks do).
CREATE OR REPLACE FUNCTION queen.read_outbox_v1(p_messages int, p_bytes bigint)
RETURNS TABLE (
    moves bigint, target text, done bool, xid text, seq bigint, queue_id bigint, queue text, n int, partitions text[],
    held text[], transaction_ids text[], fields text[], payloads text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_at queen.outbox_position;
    v_target pg_snapshot;
    v_holds CONSTANT bool := EXISTS (SELECT 1 FROM queen.outbox_held_partitions);
BEGIN
    SELECT * INTO v_at FROM queen.outbox_position AS p WHERE p.id;
    v_target := coalesce(v_at.target, pg_current_snapshot());
    RETURN QUERY
    WITH waiting AS (
        SELECT o.*
        FROM queen.outbox_ranges(v_at.seen, v_target, v_at.last_xid, v_at.last_seq) AS r
        CROSS JOIN LATERAL (
            SELECT * FROM queen.outbox AS o
            WHERE (o.xid, o.seq) > (r.from_xid, r.from_seq) AND o.xid <= r.to_xid
                AND pg_visible_in_snapshot(o.xid, v_target)
            ORDER BY o.xid, o.seq LIMIT p_messages + 1
        ) AS o
        ORDER BY o.xid, o.seq LIMIT p_messages + 1
    ), numbered AS (
        SELECT w.*, row_number() OVER (ORDER BY w.xid, w.seq) AS number, sum(w.n) OVER (ORDER BY w.xid, w.seq) AS messages,
            sum(pg_column_size(w.payloads)) OVER (ORDER BY w.xid, w.seq) AS bytes
        FROM waiting AS w
    ), next AS MATERIALIZED (
        SELECT * FROM numbered AS n WHERE n.number = 1 OR (n.messages <= p_messages AND n.bytes <= p_bytes)
    )
    SELECT v_at.moves, CASE WHEN n.number = 1 THEN v_target::text END,
        (SELECT count(*) FROM next) = (SELECT count(*) FROM waiting), n.xid::text, n.seq, n.queue_id, q.name, n.n,
        n.partitions,
        CASE WHEN v_holds THEN ARRAY(
            SELECT h.partition FROM queen.outbox_held_partitions AS h
            WHERE h.queue_id = n.queue_id AND h.partition = ANY(n.partitions)
        ) END,
        n.transaction_ids, n.fields, n.payloads
    FROM next AS n LEFT JOIN queen.queues AS q ON q.id = n.queue_id
    ORDER BY n.number;
END $$;
COMMENT ON FUNCTION queen.read_outbox_v1 IS 'The next messages of the outbox, in the order of their transactions.';

-- Purpose:   as read_outbox_v1, and looks again while nothing waits: p_looks times, with pauses of p_pause_ms between them.
--            So a look costs no round trip, and no read unless a transaction has ended.
CREATE OR REPLACE FUNCTION queen.await_outbox_v1(p_messages int, p_bytes bigint, p_pause_ms int, p_looks int)
RETURNS TABLE (
    moves bigint, target text, done bool, xid text, seq bigint, queue_id bigint, queue text, n int, partitions text[],
    held text[], transaction_ids text[], fields text[], payloads text
)
LANGUAGE plpgsql
AS $$
DECLARE
    v_read text := '';
    v_now text;
BEGIN
    FOR v_look IN 1..p_looks LOOP
        v_now := pg_current_snapshot()::text;
        IF v_now <> v_read THEN
            RETURN QUERY SELECT * FROM queen.read_outbox_v1(p_messages, p_bytes);
            IF FOUND THEN
                RETURN;
            END IF;
            v_read := v_now;
        END IF;
        IF v_look < p_looks THEN
            -- It sleeps whole milliseconds, and one more if the clock says that the last one is not quite over.
            PERFORM pg_sleep((p_pause_ms - 0.1) / 1000);
        END IF;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.await_outbox_v1 IS 'The next messages of the outbox, as soon as there are any, for a short time.';

-- Purpose:   moves the messages that read_outbox_v1 has returned into the log: all or none, and never twice. Those of
--            partitions that are held back go to outbox_held.
-- Arguments: p_moves, p_target, p_done, p_xid, p_seq   what read_outbox_v1 has returned, and p_rows, how many rows
--            p_hold_queue, p_hold_partition, p_reason   partitions that are held back from now on, and why
--            the others   those of push_to_waiters_v1, without messages of deleted queues and of held back partitions; no
--                         waiting pops: p_wait_grp is null
-- Returns:   one row: whether they were moved; the partitions that are unknown (null: none), and whether the push options
--            have changed; what the waiting pops get, as append_accepted says. If they were not moved nothing was changed:
--            the messages must be laid out again, or, if both say nothing, be read again, because another worker has moved
--            messages, or does.
-- Locks:     outbox_position; then those of push_messages_v1, for which it waits a quarter of a second.
-- Writes:    outbox, outbox_position, outbox_held, outbox_held_partitions, queue_sizes, and what push_messages_v1 writes.
CREATE OR REPLACE FUNCTION queen.move_outbox_v1(
    p_moves bigint, p_target text, p_done bool, p_xid text, p_seq bigint, p_rows int,
    p_hold_queue bigint[], p_hold_partition text[], p_reason text, p_flush uuid,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint,
    p_wait_grp bigint[], p_wait_lease uuid[], p_wait_batch int[], p_wait_parts int[], p_wait_seconds int[],
    OUT moved bool, OUT unknown bigint[], OUT stale bool, OUT given text
)
LANGUAGE plpgsql
SET lock_timeout = '250ms'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_at queen.outbox_position;
    v_target pg_snapshot := p_target::pg_snapshot;
    v_range record;
    v_holds bool;
    v_deleted int;
    v_messages bigint;
    v_all int := 0;
    v_all_messages bigint := 0;
BEGIN
    moved := false;
    stale := false;
    SELECT * INTO v_at FROM queen.outbox_position AS p WHERE p.id FOR UPDATE SKIP LOCKED;
    IF v_at.moves IS DISTINCT FROM p_moves THEN
        RETURN;
    END IF;
    IF p_part <> '{}' THEN
        SELECT a.unknown, a.stale, a.given INTO unknown, stale, given
        FROM queen.append_accepted(
            p_flush, NULL, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version,
            p_wait_grp, p_wait_lease, p_wait_batch, p_wait_parts, p_wait_seconds) AS a;
        IF stale OR unknown IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO queen.outbox_held_partitions (queue_id, partition, reason)
    SELECT u.queue_id, u.partition, p_reason FROM unnest(p_hold_queue, p_hold_partition) AS u (queue_id, partition)
    ON CONFLICT DO NOTHING;
    v_holds := EXISTS (SELECT 1 FROM queen.outbox_held_partitions);
    FOR v_range IN SELECT r.* FROM queen.outbox_ranges(v_at.seen, v_target, v_at.last_xid, v_at.last_seq) AS r LOOP
        WITH d AS (
            DELETE FROM queen.outbox AS o
            WHERE (o.xid, o.seq) > (v_range.from_xid, v_range.from_seq) AND o.xid <= v_range.to_xid
                AND pg_visible_in_snapshot(o.xid, v_target)
                AND (o.xid, o.seq) <= (p_xid::xid8, p_seq)
            RETURNING o.*
        ), held AS (
            INSERT INTO queen.outbox_held (queue_id, partition, transaction_id, fields, payload, pushed_at)
            SELECT m.queue_id, m.partition, m.transaction_id, m.fields, m.payload, m.pushed_at
            FROM (
                SELECT d.xid, d.seq, d.queue_id, d.pushed_at, u.payload, u.ord, d.transaction_ids[u.ord] AS transaction_id,
                    d.partitions[CASE WHEN cardinality(d.partitions) = 1 THEN 1 ELSE u.ord END] AS partition,
                    d.fields[CASE WHEN cardinality(d.fields) = 1 THEN 1 ELSE u.ord END] AS fields
                FROM d CROSS JOIN LATERAL unnest(string_to_array(d.payloads, E'\n')) WITH ORDINALITY AS u (payload, ord)
                WHERE v_holds
            ) AS m
            JOIN queen.outbox_held_partitions AS h ON h.queue_id = m.queue_id AND h.partition = m.partition
            ORDER BY m.xid, m.seq, m.ord
        )
        SELECT count(*), coalesce(sum(d.n), 0) INTO v_deleted, v_messages FROM d;
        v_all := v_all + v_deleted;
        v_all_messages := v_all_messages + v_messages;
    END LOOP;
    IF v_all <> p_rows THEN
        RAISE EXCEPTION '% rows of the outbox were read, and % are there', p_rows, v_all USING ERRCODE = 'QN004';
    END IF;
    UPDATE queen.outbox_position AS p
    SET moves = p.moves + 1,
        messages = p.messages + v_all_messages,
        seen = CASE WHEN p_done THEN v_target ELSE p.seen END,
        target = CASE WHEN NOT p_done THEN v_target END,
        last_xid = CASE WHEN NOT p_done THEN p_xid::xid8 END,
        last_seq = CASE WHEN NOT p_done THEN p_seq END
    WHERE p.id;
    moved := true;
END $$;
COMMENT ON FUNCTION queen.move_outbox_v1 IS 'Moves messages of the outbox into the log: all or none, and never twice.';

-- Purpose:   makes the next read look at all rows. A worker that begins to move messages calls it, because the database may
--            have been restored from a dump: its transactions had other numbers, and some are not given yet.
CREATE OR REPLACE FUNCTION queen.restart_outbox_v1() RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    -- Of a restored dump: its numbers of transactions say nothing here, and seq is the order of the pushes.
    UPDATE queen.outbox AS o SET xid = '0'
    WHERE EXISTS (SELECT 1 FROM queen.outbox AS r WHERE r.xid >= pg_snapshot_xmax(pg_current_snapshot()));
    UPDATE queen.outbox_position SET moves = moves + 1, seen = NULL, target = NULL, last_xid = NULL, last_seq = NULL
    WHERE id;
END;
COMMENT ON FUNCTION queen.restart_outbox_v1 IS 'Makes the next read of the outbox look at all rows.';
