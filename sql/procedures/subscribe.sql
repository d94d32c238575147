-- Purpose:   returns the number of a consumer group on a queue. Creates the group at first contact, and a page of its
--            cursors in each call that needs more of them.
-- Arguments: p_queue, p_group; p_mode all, new or timestamp and p_from its time: where the group begins, if it is made now
--            p_create_queue  makes the queue too: a named group on a queue that does not exist yet must not miss its first messages
--            p_step          cursors of a page
--            p_part          the only partition that the caller needs: its cursor is made out of turn, instead of a page
--            p_wanted        untouched partitions that are enough for the caller; null: as many as there are
-- Returns:   queue_id and grp_id (null: unknown and not made); complete: false while there are more pages to make, by
--            any caller; starts_in: seconds to a start that lies in the future (call again then); and while it is not
--            complete, ready: untouched partitions, which have been ready since the group began, up to p_wanted; 1 if
--            p_part has its cursor. A group that is being deleted is deleted further by a caller that would make it:
--            grp_id null, complete false.
-- Locks:     the queue row FOR UPDATE at first contact and where a deletion goes on; then the group, partitions of a
--            page in part_id order, and the group's cursors in part_id order; at first contact the size of the queue,
--            last, because no other call waits for cursors of a new group.
-- Writes:    queues, consumer_groups_metadata, partition_consumers, queue_sizes; where a deletion goes on, as
--            delete_group_v1.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]), part_id + 0.
CREATE OR REPLACE FUNCTION queen.subscribe_v1(
    p_queue text, p_group text, p_mode text, p_from timestamptz, p_create_queue bool, p_create_group bool, p_step int,
    p_part bigint DEFAULT NULL, p_wanted int DEFAULT NULL,
    OUT queue_id bigint, OUT grp_id bigint, OUT complete bool, OUT starts_in float8, OUT ready int
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_group queen.consumer_groups_metadata;
    v_made bool := false;
BEGIN
    SELECT q.id INTO queue_id FROM queen.queues AS q WHERE q.name = p_queue;
    IF queue_id IS NULL AND p_create_queue THEN
        INSERT INTO queen.queues (name, namespace, task)
        VALUES (p_queue, split_part(p_queue, '.', 1), split_part(p_queue, '.', 2)) ON CONFLICT DO NOTHING;
        SELECT q.id INTO queue_id FROM queen.queues AS q WHERE q.name = p_queue;
    END IF;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = subscribe_v1.queue_id AND g.name = p_group;
    IF v_group.subscribed_upto < 0 THEN
        IF p_create_group THEN
            PERFORM queen.delete_group_v1(p_queue, p_group, true, 'rest', p_step);
            complete := false;
        END IF;
        RETURN;
    END IF;
    IF v_group.id IS NULL AND p_create_group THEN
        -- FOR UPDATE waits for partitions that are being made (FOR SHARE); later ones will find the group.
        PERFORM 1 FROM queen.queues AS q WHERE q.id = subscribe_v1.queue_id FOR UPDATE;
        -- A group that was deleted comes back under its number: other workers may still know that.
        INSERT INTO queen.consumer_groups_metadata (id, queue_id, name, subscription_mode, since, starts_at, created_at)
        OVERRIDING SYSTEM VALUE
        SELECT
            coalesce(r.id, nextval(pg_get_serial_sequence('queen.consumer_groups_metadata', 'id'))), q.id, p_group, p_mode,
            CASE p_mode WHEN 'all' THEN '-infinity' WHEN 'new' THEN v_now ELSE p_from END,
            CASE WHEN p_mode = 'timestamp' AND p_from >= v_now THEN p_from END,
            queen.clock()  -- not before: a session may have had a mark of the group while that was being deleted
        FROM queen.queues AS q
        LEFT JOIN queen.retired_groups AS r ON r.queue_id = q.id AND r.name = p_group
        WHERE q.id = subscribe_v1.queue_id
        ON CONFLICT DO NOTHING;
        v_made := FOUND;
        SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = subscribe_v1.queue_id AND g.name = p_group;
    END IF;
    IF v_group.id IS NULL THEN
        -- Deleted at this moment: another call creates it again.
        complete := CASE WHEN p_create_group AND queue_id IS NOT NULL THEN false END;
        RETURN;
    END IF;
    complete := queen.has_all_cursors(v_group, v_now);
    IF NOT complete THEN
        ready := queen.untouched(v_group, p_part, p_wanted);
        IF coalesce(ready < CASE WHEN p_part IS NULL THEN p_wanted ELSE 1 END, true) THEN
            IF p_part IS NOT NULL AND v_group.starts_at IS NULL THEN
                v_group := queen.begin_partition(v_group.id, p_part);
            ELSE
                v_group := queen.begin_page(v_group.id, p_step);
            END IF;
            complete := coalesce(queen.has_all_cursors(v_group, v_now), false);
            ready := CASE WHEN p_part IS NOT NULL AND v_group.starts_at IS NULL THEN 1 ELSE queen.untouched(v_group, NULL, p_wanted) END;
        END IF;
    END IF;
    IF v_made THEN
        PERFORM queen.forget_size(queue_id);
    END IF;
    grp_id := v_group.id;
    starts_in := CASE WHEN v_group.starts_at >= v_now AND NOT v_group.begins THEN extract(epoch FROM v_group.starts_at - v_now) END;
END $$;
COMMENT ON FUNCTION queen.subscribe_v1 IS 'The number of a consumer group on a queue; creates the group on first use.';

-- Whether a group has the cursors of all partitions, and they stand at its start if that has come.
CREATE OR REPLACE FUNCTION queen.has_all_cursors(p_group queen.consumer_groups_metadata, p_now timestamptz) RETURNS bool
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN p_group.subscribed_upto = 9223372036854775807 AND coalesce(p_group.starts_at >= p_now, true);
END $$;
COMMENT ON FUNCTION queen.has_all_cursors IS 'Internal: whether a group has all its cursors.';

-- How many partitions of a group that has not all its cursors have been ready since it began, up to p_wanted. A pop
-- that finds so many passes over nothing: no partition is ready for longer. Or whether p_part has its cursor. None
-- where messages may be hidden, or may be not for the group, because its start has come and cursors have to be moved
-- there.
CREATE OR REPLACE FUNCTION queen.untouched(p_group queen.consumer_groups_metadata, p_part bigint, p_wanted int)
RETURNS int
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    IF p_group.starts_at IS NOT NULL THEN
        RETURN 0;
    ELSIF p_part IS NOT NULL THEN
        RETURN (SELECT count(*) FROM (
            SELECT 1 FROM queen.partition_consumers AS c
            WHERE c.part_id = p_part AND c.grp_id = p_group.id ORDER BY c.ver DESC LIMIT 1) AS u);
    ELSIF EXISTS (
        SELECT 1 FROM queen.queues AS q
        WHERE q.id = p_group.queue_id AND (q.delayed_processing > 0 OR q.window_buffer > 0)
    ) THEN
        RETURN 0;
    END IF;
    RETURN (
        SELECT count(*)
        FROM (
            SELECT 1 FROM queen.partition_consumers AS c
            WHERE c.grp_id = p_group.id AND c.ready_at <= p_group.created_at
            ORDER BY c.ready_at, c.part_id + 0 LIMIT coalesce(p_wanted, 0)
        ) AS u
    );
END $$;
COMMENT ON FUNCTION queen.untouched IS 'Internal: partitions of a group that were not popped since it began.';

-- Makes the cursors of the next p_step partitions of a group, and moves those up that it has there already if its start has come.
-- Returns the group as it is then.
CREATE OR REPLACE FUNCTION queen.begin_page(p_grp bigint, p_step int) RETURNS queen.consumer_groups_metadata
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_group queen.consumer_groups_metadata;
    v_page bigint[];
    v_old bigint[];     -- those that have a cursor: they were made after the group, or before its start
    v_now timestamptz;
BEGIN
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp FOR NO KEY UPDATE;
    v_now := queen.clock();
    IF v_group.starts_at < v_now AND NOT v_group.begins THEN
        v_group := queen.begin_group(p_grp);
    END IF;
    IF v_group.id IS NULL OR v_group.subscribed_upto < 0 OR v_group.subscribed_upto = 9223372036854775807 THEN
        RETURN v_group;
    END IF;
    SELECT array_agg(u.id) INTO v_page
    FROM (
        SELECT p.id FROM queen.partitions AS p
        WHERE p.queue_id + 0 = v_group.queue_id AND p.id + 0 > v_group.subscribed_upto ORDER BY p.id + 0 LIMIT p_step
    ) AS u;
    v_old := queen.add_cursors(v_group, v_page, v_now);
    IF v_group.begins AND v_old IS NOT NULL THEN
        PERFORM queen.move_up(p_grp, v_old, queen.start_of(v_group, v_now));
    END IF;
    IF coalesce(cardinality(v_page), 0) < p_step THEN
        UPDATE queen.consumer_groups_metadata AS g SET subscribed_upto = 9223372036854775807, begins = false,
            starts_at = CASE WHEN NOT v_group.begins THEN g.starts_at END
        WHERE g.id = p_grp RETURNING * INTO v_group;
    ELSE
        UPDATE queen.consumer_groups_metadata AS g SET subscribed_upto = v_page[p_step]
        WHERE g.id = p_grp RETURNING * INTO v_group;
    END IF;
    RETURN v_group;
END $$;
COMMENT ON FUNCTION queen.begin_page IS 'Internal: creates the cursors of a group in the next partitions.';

-- Makes the cursor in one partition for a group that has begun, out of turn, while another call may be making a page
-- and waiting for a lock. The lock on the row of the group excludes its deletion; a call that makes a cursor locks the
-- partition.
CREATE OR REPLACE FUNCTION queen.begin_partition(p_grp bigint, p_part bigint) RETURNS queen.consumer_groups_metadata
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_group queen.consumer_groups_metadata;
BEGIN
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp FOR KEY SHARE;
    IF v_group.subscribed_upto >= 0 THEN
        PERFORM queen.add_cursors(v_group, ARRAY[p_part], queen.clock());
    END IF;
    RETURN v_group;
END $$;
COMMENT ON FUNCTION queen.begin_partition IS 'Internal: creates the cursor of a group in one partition.';

-- Makes the cursors of a group in partitions where it has none; returns those where it has one. What has been ready
-- since the group began is ready since then, even if its cursor is made later: no low-water mark has passed that
-- (queen.low_water).
CREATE OR REPLACE FUNCTION queen.add_cursors(p_group queen.consumer_groups_metadata, p_part bigint[], p_now timestamptz)
RETURNS bigint[]
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_parts bigint[];
    v_old bigint[];
BEGIN
    -- They are locked while their cursors are made: one at the end of the log is parked, and no push may slip in. A
    -- push that has the time of its messages from before a start, and is not committed yet, holds its partition.
    SELECT array_agg(h.part_id) INTO v_parts
    FROM (
        SELECT l.part_id FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR UPDATE
    ) AS h;
    SELECT array_agg(u.part_id) INTO v_old
    FROM unnest(v_parts) AS u (part_id)
    WHERE (
        SELECT c.ver FROM queen.partition_consumers AS c
        WHERE c.part_id = u.part_id AND c.grp_id = p_group.id ORDER BY c.ver DESC LIMIT 1
    ) IS NOT NULL;
    INSERT INTO queen.partition_consumers (part_id, grp_id, acked, ahead, upto, seen, ready_at)
    SELECT s.part_id, p_group.id, s.acked, s.ahead, s.acked, s.acked,
        CASE WHEN s.acked < s.last THEN least(p_group.created_at, p_now) ELSE 'infinity' END
    FROM queen.places(queen.without(v_parts, v_old), queen.start_of(p_group, p_now)) AS s;
    RETURN v_old;
END $$;
COMMENT ON FUNCTION queen.add_cursors IS 'Internal: creates the missing cursors of a group in some partitions.';

-- The time after which a group gets messages. A new group does not get what had waited too long when it began. Queue
-- mode, which has no beginning, gives that up.
CREATE OR REPLACE FUNCTION queen.start_of(p_group queen.consumer_groups_metadata, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_seconds int;
    v_since CONSTANT timestamptz := coalesce(p_group.starts_at, p_group.since);
BEGIN
    SELECT q.max_wait_time_seconds INTO v_seconds FROM queen.queues AS q WHERE q.id = p_group.queue_id;
    IF v_seconds = 0 OR p_group.name = '__QUEUE_MODE__' THEN
        RETURN v_since;
    END IF;
    RETURN greatest(
        v_since,
        queen.older_than(make_interval(secs => v_seconds) + greatest(p_now - p_group.created_at, interval '0'), NULL)
        - interval '1 microsecond');
END $$;
COMMENT ON FUNCTION queen.start_of IS 'Internal: the time after which a group gets messages.';

-- The elements of one ascending array that are not in another.
CREATE OR REPLACE FUNCTION queen.without(p_all bigint[], p_some bigint[]) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    IF p_some IS NULL THEN
        RETURN p_all;
    END IF;
    RETURN ARRAY(SELECT a FROM unnest(p_all) AS a EXCEPT SELECT s FROM unnest(p_some) AS s ORDER BY 1);
END $$;
COMMENT ON FUNCTION queen.without IS 'Internal: elements of an array that are not in another.';

-- Moves cursors of a group over what was created at or before a time. What is done ahead of it stays so: acks and moves
-- to the dead letters need no pop. The caller has locked the partitions.
CREATE OR REPLACE FUNCTION queen.move_up(p_grp bigint, p_part bigint[], p_since timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM queen.lock_cursors(NULL, p_part, array_fill(p_grp, ARRAY[cardinality(p_part)]));
    UPDATE queen.partition_consumers AS c
    SET
        acked = u.acked, ahead = u.ahead, upto = u.acked, seen = u.acked, ver = c.ver + 1,
        ready_at = CASE WHEN u.acked < u.last THEN c.ready_at ELSE 'infinity' END
    FROM (
        SELECT s.part_id, p_grp AS grp_id, l.ver, s.last, a.acked, a.ahead
        FROM queen.places(p_part, p_since) AS s
        CROSS JOIN LATERAL (
            SELECT o.ver, o.acked, o.ahead FROM queen.partition_consumers AS o
            WHERE o.part_id = s.part_id AND o.grp_id = p_grp ORDER BY o.ver DESC LIMIT 1
        ) AS l
        CROSS JOIN LATERAL queen.advance(s.acked, l.ahead) AS a
        WHERE l.acked < a.acked
        OFFSET 0  -- the version first: not all of them
    ) AS u
    WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver;
END $$;
COMMENT ON FUNCTION queen.move_up IS 'Internal: moves cursors of a group over messages that it does not get.';

-- A group whose start lies ahead begins now, or has begun at its start if that is over. Its pages begin again, and move
-- up the cursors that exist. Until they are done, its start stays as it was set, and pops get nothing.
CREATE OR REPLACE FUNCTION queen.begin_group(p_grp bigint) RETURNS queen.consumer_groups_metadata
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_group queen.consumer_groups_metadata;
BEGIN
    UPDATE queen.consumer_groups_metadata AS g
    SET starts_at = least(g.starts_at, queen.clock()), begins = true, subscribed_upto = 0
    WHERE g.id = p_grp AND g.starts_at IS NOT NULL AND NOT g.begins AND g.subscribed_upto >= 0;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp;
    RETURN v_group;
END $$;
COMMENT ON FUNCTION queen.begin_group IS 'Internal: ends the wait of a group for its start.';
