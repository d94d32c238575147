-- A partition moves from one database (source) to another one (target) in the steps of ADR 69. Each can be repeated.

-- Purpose:   the next partitions of this database, by number, with the shard on which the list places them.
-- Arguments: p_queue  only those of this queue, and of queues that follow it or that it follows (null: of all)
--            p_partition  only those of this name (null: of all)
--            p_after, p_limit  the page: partitions after this number, at most so many
CREATE OR REPLACE FUNCTION queen.list_homes_v1(p_queue text, p_partition text, p_after bigint, p_limit int)
RETURNS TABLE (part_id bigint, queue text, partition text, home text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.id, q.name, p.name, queen.home_of(q.name, p.name, l.opened)
    FROM queen.partitions AS p
    JOIN queen.queues AS q ON q.id = p.queue_id
    CROSS JOIN queen.shard_list AS l
    WHERE p.id > p_after AND (p_partition IS NULL OR p.name = p_partition) AND (
        p_queue IS NULL OR coalesce(q.colocate_with, q.name)
        = coalesce((SELECT f.colocate_with FROM queen.queues AS f WHERE f.name = p_queue), p_queue)
    )
    ORDER BY p.id LIMIT p_limit;
END;
COMMENT ON FUNCTION queen.list_homes_v1 IS 'Partitions of this database, and where the list of shards places them.';

-- Purpose:   what is known here of moved partitions, as far as it changed after p_seq.
CREATE OR REPLACE FUNCTION queen.read_moves_v1(p_seq bigint)
RETURNS TABLE (part_id bigint, queue text, partition text, slot int, state text, seq bigint)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT m.part_id, m.queue, m.partition, m.slot, m.state, m.seq
    FROM queen.moved_partitions AS m WHERE m.seq > p_seq ORDER BY m.seq;
END;
COMMENT ON FUNCTION queen.read_moves_v1 IS 'Partitions that are, or were, moved from or to this database.';

-- Purpose:   step 1, at the target: from here on no call makes a partition of this name here.
-- Returns:   awaited; here: it has come already; or what is in the way.
-- Locks:     the queue FOR UPDATE, for which calls that make partitions wait.
-- Writes:    moved_partitions; what an earlier stay of the partition has left is removed.
CREATE OR REPLACE FUNCTION queen.await_partition_v1(p_part bigint, p_queue text, p_partition text) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_queue bigint;
    v_slot int := (SELECT s.slot FROM queen.shards AS s WHERE s.own);
BEGIN
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR UPDATE;
    IF v_queue IS NULL THEN
        RETURN 'the queue is not there';
    ELSIF EXISTS (SELECT 1 FROM queen.partitions AS p WHERE p.id = p_part) THEN
        RETURN 'here';
    ELSIF EXISTS (SELECT 1 FROM queen.partitions AS p WHERE p.queue_id = v_queue AND p.name = p_partition) THEN
        RETURN 'another partition of this name is there';
    END IF;
    DELETE FROM queen.removed_partitions AS r WHERE r.part_id IN (p_part, -p_part);
    PERFORM queen.empty_partitions(ARRAY[p_part, -p_part], NULL);
    INSERT INTO queen.moved_partitions AS m (part_id, queue, partition, queue_id, slot, state)
    VALUES (p_part, p_queue, p_partition, v_queue, v_slot, 'awaited')
    ON CONFLICT (part_id) DO UPDATE
    SET queue_id = v_queue, slot = v_slot, state = 'awaited', seq = DEFAULT, changed_at = clock_timestamp(), contents = NULL
    WHERE m.state <> 'awaited' OR m.queue_id <> v_queue;
    RETURN 'awaited';
END $$;
COMMENT ON FUNCTION queen.await_partition_v1 IS 'Makes ready for a partition that is moved to this database.';

-- Purpose:   instead of the steps from 2 on, at the target: the partition does not come.
CREATE OR REPLACE FUNCTION queen.await_no_longer_v1(p_part bigint) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    UPDATE queen.moved_partitions AS m SET state = 'gone', seq = DEFAULT, changed_at = clock_timestamp()
    WHERE m.part_id = p_part AND m.state = 'awaited';
END;
COMMENT ON FUNCTION queen.await_no_longer_v1 IS 'The end of a move that was not begun.';

-- Purpose:   step 2, at the source: takes the partition out of sight of all calls, with all that belongs to it, in one
--            transaction. Its cursors, timers and schedules become `contents`; dead letters, traces and states of streams
--            get the negative number of the partition; its log and its transaction ids, which nothing reads by
--            themselves, stay as they are.
-- Arguments: p_slot  of the target
-- Returns:   sealed (also if it was already); gone: there is no such partition; or why not now.
-- Locks:     the queue; the list of shards, for which it waits until transactions with queen.push are over; the groups of
--            the queue, the partition, its cursors.
-- Writes:    moved_partitions, removed_partitions, and all that belongs to the partition.
CREATE OR REPLACE FUNCTION queen.seal_partition_v1(p_part bigint, p_slot int) RETURNS text
LANGUAGE plpgsql
SET lock_timeout = '2s'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_partition queen.partitions;
    v_queue text;
    v_now timestamptz;
    v_contents jsonb;
BEGIN
    SELECT p.* INTO v_partition FROM queen.partitions AS p WHERE p.id = p_part;
    SELECT q.name INTO v_queue FROM queen.queues AS q WHERE q.id = v_partition.queue_id FOR UPDATE;
    IF v_queue IS NULL THEN
        RETURN coalesce((SELECT m.state FROM queen.moved_partitions AS m WHERE m.part_id = p_part AND m.state = 'sealed'), 'gone');
    END IF;
    PERFORM 1 FROM queen.shard_list AS l WHERE l.id FOR UPDATE;
    PERFORM queen.lock_groups(v_partition.queue_id);
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = p_part FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.part_id = p_part ORDER BY c.grp_id FOR UPDATE;
    IF EXISTS (
        SELECT 1 FROM queen.outbox AS o WHERE o.queue_id = v_partition.queue_id AND v_partition.name = ANY(o.partitions)
    ) OR EXISTS (
        SELECT 1 FROM queen.outbox_held_partitions AS h
        WHERE h.queue_id = v_partition.queue_id AND h.partition = v_partition.name
    ) THEN
        RETURN 'messages that were pushed with SQL wait for it';
    END IF;
    -- They become one value, which has 255 MB at most.
    IF (
        SELECT count(*) > 100000 OR sum(octet_length(t.message)) > 67108864 FROM (
            SELECT i.message FROM queen.timers AS i
            WHERE i.queue_id = v_partition.queue_id AND i.partition = v_partition.name LIMIT 100001
        ) AS t
    ) THEN
        RETURN 'it has more than 100,000 timers and delayed messages, or 64 MB of them';
    END IF;
    v_now := queen.clock();
    -- A lease of a worker says on which database it was given (a UUID of version 8); acks of others cannot follow.
    IF EXISTS (
        SELECT 1 FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.lease IS NOT NULL AND c.ready_at > v_now AND substr(c.lease::text, 15, 1) <> '8'
    ) THEN
        RETURN 'a consumer with SQL has messages of it';
    END IF;
    SELECT jsonb_build_object(
        'sealedAt', v_now, 'createdAt', v_partition.created_at,
        'cursors', (
            SELECT coalesce(jsonb_agg(to_jsonb(c) || jsonb_build_object('group', g.name)), '[]')
            FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
            WHERE c.part_id = p_part
        )
    ) || queen.take_timers(v_partition.queue_id, v_partition.name) INTO v_contents;
    INSERT INTO queen.moved_partitions AS m (part_id, queue, partition, queue_id, slot, state, contents)
    VALUES (p_part, v_queue, v_partition.name, v_partition.queue_id, p_slot, 'sealed', v_contents)
    ON CONFLICT (part_id) DO UPDATE
    SET queue_id = excluded.queue_id, slot = p_slot, state = 'sealed', seq = DEFAULT, changed_at = clock_timestamp(),
        contents = excluded.contents;
    UPDATE queen.dead_letter_queue AS d SET part_id = -d.part_id, queue_id = -d.queue_id WHERE d.part_id = p_part;
    UPDATE queen.traces AS t SET part_id = -t.part_id, queue_id = -t.queue_id WHERE t.part_id = p_part;
    UPDATE queen.stream_state AS s SET part_id = -s.part_id WHERE s.part_id = p_part;
    UPDATE queen.stream_cycles AS s SET part_id = -s.part_id WHERE s.part_id = p_part;
    PERFORM queen.hide_partitions(ARRAY[p_part]);
    INSERT INTO queen.removed_partitions (part_id, not_before) VALUES (p_part, 'infinity'), (-p_part, 'infinity');
    RETURN 'sealed';
END $$;
COMMENT ON FUNCTION queen.seal_partition_v1 IS 'Takes a partition out of sight of all calls, to move it.';

-- Removes the timers and schedules of a partition, and returns them.
CREATE OR REPLACE FUNCTION queen.take_timers(p_queue_id bigint, p_partition text) RETURNS jsonb
LANGUAGE sql
BEGIN ATOMIC
    WITH timer AS (
        DELETE FROM queen.timers AS t WHERE t.queue_id = p_queue_id AND t.partition = p_partition RETURNING t.*
    ), schedule AS (
        DELETE FROM queen.schedules AS s WHERE s.queue_id = p_queue_id AND s.partition = p_partition RETURNING s.*
    )
    SELECT jsonb_build_object(
        'timers', (SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY t.deliver_at, t.seq), '[]') FROM timer AS t),
        'schedules', (SELECT coalesce(jsonb_agg(to_jsonb(s)), '[]') FROM schedule AS s));
END;
COMMENT ON FUNCTION queen.take_timers IS 'Internal: removes the timers and schedules of a partition, and returns them.';

-- Purpose:   of a sealed partition: what queen.open_partition_v1 needs.
CREATE OR REPLACE FUNCTION queen.read_sealed_v1(p_part bigint) RETURNS jsonb
LANGUAGE sql STABLE
RETURN (SELECT m.contents FROM queen.moved_partitions AS m WHERE m.part_id = p_part AND m.state = 'sealed');
COMMENT ON FUNCTION queen.read_sealed_v1 IS 'The cursors, timers and schedules of a sealed partition.';

-- Purpose:   step 3, at the target: the numbers here of the queue of an awaited partition and of its groups. A group that
--            was deleted is among them, because its dead letters are still there.
-- Returns:   one row per name, with the number of the queue; no row: the queue was deleted, or the partition is not awaited.
-- Writes:    retired_groups.
CREATE OR REPLACE FUNCTION queen.number_groups_v1(p_part bigint, p_group text[])
RETURNS TABLE (queue_id bigint, name text, grp_id bigint)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint := (
        SELECT q.id FROM queen.moved_partitions AS m JOIN queen.queues AS q ON q.id = m.queue_id
        WHERE m.part_id = p_part AND m.state = 'awaited');
BEGIN
    INSERT INTO queen.retired_groups (queue_id, name, id)
    SELECT v_queue, u.name, nextval(pg_get_serial_sequence('queen.consumer_groups_metadata', 'id'))
    FROM unnest(p_group) AS u (name)
    WHERE v_queue IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = v_queue AND g.name = u.name
    )
    ON CONFLICT DO NOTHING;
    RETURN QUERY
    SELECT v_queue, u.name, coalesce(g.id, r.id)
    FROM unnest(p_group) AS u (name)
    LEFT JOIN queen.consumer_groups_metadata AS g ON g.queue_id = v_queue AND g.name = u.name
    LEFT JOIN queen.retired_groups AS r ON r.queue_id = v_queue AND r.name = u.name
    WHERE v_queue IS NOT NULL;
END $$;
COMMENT ON FUNCTION queen.number_groups_v1 IS 'The numbers of groups for which dead letters are moved here.';

-- Purpose:   step 4, at the target, at the end of the transaction that has stored the log: the partition is here.
-- Arguments: p_contents  as queen.read_sealed_v1 returns it
-- Returns:   false: its queue was deleted meanwhile, and the caller undoes its transaction.
-- Locks:     the queue, its groups.
-- Writes:    partitions, partition_locks, partition_consumers, timers, schedules, queue_sizes, moved_partitions.
CREATE OR REPLACE FUNCTION queen.open_partition_v1(p_part bigint, p_contents jsonb) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_move queen.moved_partitions;
    v_now timestamptz;
    v_later interval;
BEGIN
    SELECT m.* INTO v_move FROM queen.moved_partitions AS m WHERE m.part_id = p_part AND m.state = 'awaited';
    PERFORM 1 FROM queen.queues AS q WHERE q.id = v_move.queue_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM queen.lock_groups(v_move.queue_id);
    INSERT INTO queen.partitions (id, queue_id, name, created_at) OVERRIDING SYSTEM VALUE
    VALUES (p_part, v_move.queue_id, v_move.partition, (p_contents ->> 'createdAt')::timestamptz);
    INSERT INTO queen.partition_locks (part_id) VALUES (p_part);
    PERFORM queen.forget_size(v_move.queue_id);
    PERFORM queen.put_timers(v_move.queue_id, p_contents);
    UPDATE queen.moved_partitions AS m SET state = 'here', seq = DEFAULT, changed_at = clock_timestamp()
    WHERE m.part_id = p_part;
    -- Last, so that the time is not older than the commit by much. Leases and delays last as long as they would have.
    v_now := queen.write_clock();
    v_later := v_now - (p_contents ->> 'sealedAt')::timestamptz;
    INSERT INTO queen.partition_consumers
    SELECT r.* FROM jsonb_array_elements(p_contents -> 'cursors') AS u (cursor)
    JOIN queen.consumer_groups_metadata AS g
        ON g.queue_id = v_move.queue_id AND g.name = u.cursor ->> 'group' AND g.subscribed_upto >= 0
    CROSS JOIN LATERAL jsonb_populate_record(NULL::queen.partition_consumers, u.cursor || jsonb_build_object(
        'grp_id', g.id, 'prefetched_until', NULL,
        'ready_at', greatest((u.cursor ->> 'ready_at')::timestamptz + v_later, v_now),
        'retry_at', (u.cursor ->> 'retry_at')::timestamptz + v_later)) AS r;
    PERFORM queen.add_cursors(g, ARRAY[p_part], v_now) FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_move.queue_id AND g.subscribed_upto >= 0;
    RETURN true;
END $$;
COMMENT ON FUNCTION queen.open_partition_v1 IS 'Opens a partition that was moved to this database.';

-- Makes the timers and schedules of a moved partition. If another one has the key or the name, the move fails.
CREATE OR REPLACE FUNCTION queen.put_timers(p_queue_id bigint, p_contents jsonb) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, asked_at, message)
    SELECT r.deliver_at, p_queue_id, r.key, r.partition, r.transaction_id, r.asked_at, r.message
    FROM jsonb_populate_recordset(NULL::queen.timers, p_contents -> 'timers') AS r;
    INSERT INTO queen.schedules
    SELECT r.* FROM jsonb_array_elements(p_contents -> 'schedules') AS u (schedule)
    CROSS JOIN LATERAL jsonb_populate_record(
        NULL::queen.schedules, u.schedule || jsonb_build_object('queue_id', p_queue_id)) AS r;
END;
COMMENT ON FUNCTION queen.put_timers IS 'Internal: makes the timers and schedules of a moved partition.';

-- Purpose:   before step 1, at the source: the keys of the timers and schedules of a partition, as many as may move.
CREATE OR REPLACE FUNCTION queen.list_timer_keys_v1(p_queue text, p_partition text) RETURNS TABLE (kind text, key text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT u.kind, u.key FROM queen.queues AS q
    CROSS JOIN LATERAL (
        SELECT 'timer' AS kind, t.key FROM queen.timers AS t WHERE t.queue_id = q.id AND t.partition = p_partition
        UNION ALL
        SELECT 'schedule', s.name FROM queen.schedules AS s WHERE s.queue_id = q.id AND s.partition = p_partition
    ) AS u
    WHERE q.name = p_queue LIMIT 100000;
END;
COMMENT ON FUNCTION queen.list_timer_keys_v1 IS 'Keys of the timers and schedules of a partition.';

-- Purpose:   before step 1, at the target: which keys others have here already. They would fail the move.
CREATE OR REPLACE FUNCTION queen.find_taken_keys_v1(p_queue text, p_kind text[], p_key text[])
RETURNS TABLE (kind text, key text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT u.kind, u.key FROM queen.queues AS q
    CROSS JOIN unnest(p_kind, p_key) AS u (kind, key)
    WHERE q.name = p_queue AND CASE u.kind
        WHEN 'timer' THEN EXISTS (SELECT 1 FROM queen.timers AS t WHERE t.queue_id = q.id AND t.key = u.key)
        ELSE EXISTS (SELECT 1 FROM queen.schedules AS s WHERE s.queue_id = q.id AND s.name = u.key) END
    LIMIT 1;
END;
COMMENT ON FUNCTION queen.find_taken_keys_v1 IS 'A key of a timer or schedule that a queue has here already.';

-- Purpose:   step 5, at the source: the partition is at the target, or its queue was deleted. What it has left is removed
--            in the background: at once what no call can see, and after an hour its log.
CREATE OR REPLACE FUNCTION queen.forget_partition_v1(p_part bigint) RETURNS void
LANGUAGE sql
BEGIN ATOMIC
    UPDATE queen.removed_partitions AS r SET not_before = CASE
        WHEN r.part_id < 0 THEN '-infinity' ELSE clock_timestamp() + interval '1 hour' END
    WHERE r.part_id IN (p_part, -p_part);
    UPDATE queen.moved_partitions AS m
    SET state = 'gone', seq = DEFAULT, changed_at = clock_timestamp(), contents = NULL
    WHERE m.part_id = p_part AND m.state = 'sealed';
END;
COMMENT ON FUNCTION queen.forget_partition_v1 IS 'The end of a move, where the partition was.';
