-- Purpose:   finds the next partitions of a queue, by name, that hold something that retention may remove.
-- Arguments: p_after  name after which to look; p_limit  partitions to look at; p_not_after  see queen.older_than
-- Returns:   last_name, to go on from (null: that was all), and the partitions.
CREATE OR REPLACE FUNCTION queen.find_expired_v1(
    p_queue_id bigint, p_after text, p_limit int, p_not_after timestamptz DEFAULT NULL,
    OUT last_name text, OUT part_ids bigint[]
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    SELECT CASE WHEN count(*) = p_limit THEN max(u.name) END, array_agg(u.id ORDER BY u.id) FILTER (WHERE o.upto IS NOT NULL)
    INTO last_name, part_ids
    FROM (
        SELECT p.id, p.name FROM queen.partitions AS p
        WHERE p.queue_id = p_queue_id AND p.name > p_after ORDER BY p.name LIMIT p_limit
    ) AS u
    JOIN queen.queues AS q ON q.id = p_queue_id
    CROSS JOIN LATERAL queen.expiring(q, p_not_after) AS e
    CROSS JOIN LATERAL queen.expired(u.id, q, -1, 1, e.older, e.older_done) AS o;
END $$;
COMMENT ON FUNCTION queen.find_expired_v1 IS
    'The next partitions of a queue that have messages for retention to remove.';

-- What the options of a queue let retention remove: messages created before older, and those created before older_done
-- that every group has completed.
CREATE OR REPLACE FUNCTION queen.expiring(
    p_queue queen.queues, p_not_after timestamptz, OUT older timestamptz, OUT older_done timestamptz
)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF p_queue.retention_enabled AND p_queue.retention_seconds > 0 THEN
        older := queen.older_than(make_interval(secs => p_queue.retention_seconds), p_not_after);
    END IF;
    IF p_queue.ttl > 0 THEN
        older := greatest(older, queen.older_than(make_interval(secs => p_queue.ttl), p_not_after));
    END IF;
    IF p_queue.completed_retention_seconds > 0 THEN
        older_done := queen.older_than(make_interval(secs => p_queue.completed_retention_seconds), p_not_after);
    END IF;
END $$;
COMMENT ON FUNCTION queen.expiring IS 'Internal: the times before which messages of a queue may be removed.';

-- The oldest messages of a partition that queen.expiring lets retention remove, above p_from and p_messages of them or a
-- few more: the last offset of them (null: there are none), their number, those of them that are removed only because
-- they are completed, and whether there may be more. created_at rises with the offset, so they are a prefix: of the last
-- segment, what every group has completed.
CREATE OR REPLACE FUNCTION queen.expired(
    p_part bigint, p_queue queen.queues, p_from bigint, p_messages int, p_older timestamptz, p_older_done timestamptz,
    OUT upto bigint, OUT messages bigint, OUT completed bigint, OUT more bool
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_segment record;
    v_done bigint;
    v_upto bigint;
    v_number bigint;
BEGIN
    messages := 0;
    completed := 0;
    more := false;
    IF p_older_done IS NOT NULL THEN
        -- A group that is still subscribing has no cursor yet in some partitions: nothing is completed there.
        SELECT queen.lowest_cursor(p_part) INTO v_done FROM queen.partition_consumers AS c WHERE c.part_id = p_part
        HAVING count(*) = (SELECT count(*) FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue.id);
    END IF;
    IF p_older IS NULL AND v_done IS NULL THEN
        RETURN;
    END IF;
    FOR v_segment IN
        SELECT s.last_off, s.n, s.created_at FROM queen.segments AS s
        WHERE s.part_id = p_part AND s.last_off > p_from AND s.n > 0 ORDER BY s.last_off
    LOOP
        v_upto := CASE
            WHEN v_segment.created_at < p_older THEN v_segment.last_off
            WHEN v_done IS NOT NULL AND v_segment.created_at < p_older_done THEN least(v_segment.last_off, v_done)
        END;
        v_number := v_upto - v_segment.last_off + v_segment.n;
        EXIT WHEN coalesce(v_number <= 0, true);
        more := messages >= p_messages;
        EXIT WHEN more;
        upto := v_upto;
        messages := messages + v_number;
        IF NOT coalesce(v_segment.created_at < p_older, false) THEN
            completed := completed + v_number;
        END IF;
        EXIT WHEN upto < v_segment.last_off;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.expired IS 'Internal: the oldest messages of a partition that retention may remove.';

-- Purpose:   removes the oldest messages of partitions, as far as the options of their queue allow, with their
--            transaction ids, and moves cursors that were before what is left.
-- Arguments: p_part, p_from  partitions of one queue, ascending, and offsets up to which they are known to be empty
--            p_messages      where to stop, if 20 ms have not passed before; at the end of a segment
--            p_wait          true: wait for rows that others have locked; false: skip them
--            p_not_after     see queen.older_than
-- Returns:   one row per partition: upto, removed up to this offset (null: nothing was), the messages, and state: done,
--            more (the call was at its limit), or busy (passed over).
-- Locks:     the queue row FOR SHARE; then, partition by partition, queen.lock_oldest and the cursors that have to
--            move. A call that waits is for one partition, which keeps the order of locks. It waits before it removes
--            anything, because a push may want a transaction id that is being removed.
-- Writes:    segments, transaction_ids, deleted_messages, partition_consumers, retention_metrics.
CREATE OR REPLACE FUNCTION queen.remove_expired_v1(
    p_queue_id bigint, p_part bigint[], p_from bigint[], p_messages int, p_wait bool,
    p_not_after timestamptz DEFAULT NULL
) RETURNS TABLE (part_id bigint, upto bigint, messages bigint, state text)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_queue queen.queues;
    v_end timestamptz := clock_timestamp() + interval '20 ms';
    v_place record;
    v_expiring record;
    v_expired record;
    v_left bigint := p_messages;
    v_completed bigint := 0;
BEGIN
    -- Excludes a configure that keeps more: once that is answered, nothing more is removed under the old options.
    SELECT * INTO v_queue FROM queen.queues AS q WHERE q.id = p_queue_id FOR SHARE;
    SELECT * INTO v_expiring FROM queen.expiring(v_queue, p_not_after);
    FOR v_place IN SELECT u.part_id, u.empty_upto FROM unnest(p_part, p_from) AS u (part_id, empty_upto) ORDER BY u.part_id LOOP
        part_id := v_place.part_id;
        upto := NULL;
        messages := 0;
        state := 'more';
        IF v_left > 0 AND clock_timestamp() < v_end THEN
            state := CASE WHEN queen.lock_oldest(v_place.part_id, p_wait) THEN 'done' ELSE 'busy' END;
        END IF;
        IF state = 'done' THEN
            SELECT * INTO v_expired FROM queen.expired(
                v_place.part_id, v_queue, v_place.empty_upto, v_left::int, v_expiring.older, v_expiring.older_done);
            IF v_expired.upto IS NOT NULL AND NOT queen.lock_cursors_below(v_place.part_id, v_expired.upto, p_wait) THEN
                state := 'busy';
            ELSIF v_expired.upto IS NOT NULL THEN
                -- Not before it has waited: it locks a tick, which low-water marks do not pass.
                v_now := coalesce(v_now, queen.write_clock());
                PERFORM queen.remove_upto(v_place.part_id, v_expired.upto, v_now);
                upto := v_expired.upto;
                messages := v_expired.messages;
                v_left := v_left - messages;
                v_completed := v_completed + v_expired.completed;
                state := CASE WHEN v_expired.more THEN 'more' ELSE 'done' END;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
    PERFORM queen.count_removed(v_queue.name, p_messages - v_left - v_completed, v_completed, 0);
END $$;
COMMENT ON FUNCTION queen.remove_expired_v1 IS
    'Removes the oldest messages of partitions, as the options of their queue allow.';

-- Takes the locks to remove the oldest segments of a partition; true if the caller holds them now. The first excludes
-- calls that move a cursor back, which lock the partition FOR UPDATE. Pushes (FOR NO KEY UPDATE) go on, for they append
-- at the other end. The second, the row of the partition, excludes other removals.
CREATE OR REPLACE FUNCTION queen.lock_oldest(p_part bigint, p_wait bool) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF p_wait THEN
        PERFORM 1 FROM queen.partition_locks AS l JOIN queen.partitions AS p ON p.id = l.part_id
        WHERE l.part_id = p_part FOR KEY SHARE OF l FOR NO KEY UPDATE OF p;
    ELSE
        PERFORM 1 FROM queen.partition_locks AS l JOIN queen.partitions AS p ON p.id = l.part_id
        WHERE l.part_id = p_part FOR KEY SHARE OF l SKIP LOCKED FOR NO KEY UPDATE OF p SKIP LOCKED;
    END IF;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.lock_oldest IS
    'Internal: true if the caller now holds the locks that it needs to remove the oldest segments of a partition. '
    'Waits for locks, or skips locked rows.';

-- Locks all cursors below an offset; true if it has them all.
CREATE OR REPLACE FUNCTION queen.lock_cursors_below(p_part bigint, p_off bigint, p_wait bool) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_wanted bigint;
    v_locked bigint[];
BEGIN
    IF p_wait THEN
        PERFORM 1 FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.acked < p_off ORDER BY c.grp_id FOR UPDATE;
        RETURN true;
    END IF;
    SELECT count(*) INTO v_wanted FROM queen.partition_consumers AS c WHERE c.part_id = p_part AND c.acked < p_off;
    v_locked := ARRAY(
        SELECT c.grp_id FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.acked < p_off ORDER BY c.grp_id FOR UPDATE SKIP LOCKED);
    RETURN cardinality(v_locked) >= v_wanted;
END $$;
COMMENT ON FUNCTION queen.lock_cursors_below IS 'Internal: locks cursors below an offset.';

-- Removes the messages of a partition up to an offset. The caller has queen.lock_oldest and the cursors below the
-- offset.
CREATE OR REPLACE FUNCTION queen.remove_upto(p_part bigint, p_upto bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_newest bigint;
    v_hashes uuid[];
    -- The last segment of which something goes.
    v_last CONSTANT bigint := coalesce((
        SELECT s.last_off FROM queen.segments AS s
        WHERE s.part_id = p_part AND s.last_off >= p_upto ORDER BY s.last_off LIMIT 1), p_upto);
BEGIN
    -- By their hashes: transaction ids are not ordered by offset. Each is looked up by itself, which no planner can
    -- turn into reading all ids of the partition (ADR 38). An id that was free again, and was used for another message,
    -- has a higher offset.
    v_hashes := ARRAY(
        SELECT encode(substr(s.ids, 16 * i.pos + 1, 16), 'hex')::uuid
        FROM queen.segments AS s
        CROSS JOIN generate_series(0, s.n - 1 - greatest(s.last_off - p_upto, 0)::int) AS i (pos)
        WHERE s.part_id = p_part AND s.last_off <= v_last AND s.ids IS NOT NULL);
    DELETE FROM queen.transaction_ids AS t
    WHERE t.ctid = ANY(ARRAY(
        SELECT i.place FROM unnest(v_hashes) AS u (hash)
        CROSS JOIN LATERAL (
            SELECT f.ctid AS place FROM queen.transaction_ids AS f
            WHERE f.part_id = p_part AND f.hash = u.hash AND f.off <= p_upto OFFSET 0) AS i));
    SELECT e.next_off - 1 INTO v_newest FROM queen.log_ends AS e WHERE e.part_id = p_part;
    DELETE FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off <= p_upto AND s.last_off < v_newest;
    -- The newest segment stays without its messages: it says where the log ends.
    UPDATE queen.segments AS s SET n = 0, ids = NULL, ends = '', data = '[]'
    WHERE s.part_id = p_part AND s.last_off <= p_upto AND s.last_off = v_newest;
    IF v_last > p_upto THEN
        PERFORM queen.cut_segment(p_part, v_last, p_upto);
    END IF;
    UPDATE queen.deleted_messages AS d SET offsets = d.offsets - int8multirange(int8range(NULL, p_upto, '[]'))
    WHERE d.part_id = p_part;
    DELETE FROM queen.deleted_messages AS d WHERE d.part_id = p_part AND isempty(d.offsets);
    PERFORM queen.pass_over(c.part_id, c.grp_id, int8multirange(int8range(NULL, p_upto, '[]')), p_now)
    FROM queen.partition_consumers AS c WHERE c.part_id = p_part AND c.acked < p_upto;
END $$;
COMMENT ON FUNCTION queen.remove_upto IS 'Internal: removes the oldest messages of a partition.';

-- Writes a segment anew without its messages up to an offset, which is below its last one. It is held, for a rotation of keys
-- writes segments without the partition.
CREATE OR REPLACE FUNCTION queen.cut_segment(p_part bigint, p_segment bigint, p_upto bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_segment record;
    v_left record;
    v_number int;
BEGIN
    -- Copies: the columns may be stored out of line, and each number would fetch them anew.
    SELECT s.n, substr(s.data, 1) AS data, substr(s.ends, 1) AS ends, substr(s.ids, 1) AS ids INTO v_segment
    FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off = p_segment FOR NO KEY UPDATE;
    v_number := p_upto - p_segment + v_segment.n;
    SELECT * INTO v_left FROM queen.cut_messages(
        v_segment.n, ARRAY(SELECT generate_series(0, v_number - 1)), v_segment.data, v_segment.ends, v_segment.ids);
    UPDATE queen.segments AS s
    SET n = s.n - v_number, cut = s.cut + v_number, data = v_left.data, ends = v_left.ends, ids = v_left.ids
    WHERE s.part_id = p_part AND s.last_off = p_segment;
END $$;
COMMENT ON FUNCTION queen.cut_segment IS 'Internal: removes the first messages of a segment.';
