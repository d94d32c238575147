-- Purpose:   the number of a consumer group on a queue; makes the group at first contact, with a cursor in every partition.
-- Arguments: p_queue, p_group; p_mode all, new or timestamp and p_from its time: where the group begins, if it is made now
--            p_create_queue  makes the queue too: a named group on a queue that does not exist yet must not miss its first messages
--            p_step          cursors to make in this call at most
-- Returns:   queue_id and grp_id (null: unknown and not made); complete: false asks for another call, because the queue has
--            more partitions than one call should lock; starts_in: seconds to a start that lies in the future (call again then).
-- Locks:     the queue row FOR UPDATE at first contact; then partitions in part_id order, p_step at a time, and all of them when
--            a start that lay in the future has come; then the group's cursors in part_id order.
-- Writes:    queues, consumer_groups_metadata, partition_consumers.
CREATE OR REPLACE FUNCTION queen.subscribe_v1(
    p_queue text, p_group text, p_mode text, p_from timestamptz, p_create_queue bool, p_create_group bool, p_step int,
    OUT queue_id bigint, OUT grp_id bigint, OUT complete bool, OUT starts_in float8
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_group queen.consumer_groups_metadata;
BEGIN
    SELECT q.id INTO queue_id FROM queen.queues AS q WHERE q.name = p_queue;
    IF queue_id IS NULL AND p_create_queue THEN
        INSERT INTO queen.queues (name, namespace, task)
        VALUES (p_queue, split_part(p_queue, '.', 1), split_part(p_queue, '.', 2)) ON CONFLICT DO NOTHING;
        SELECT q.id INTO queue_id FROM queen.queues AS q WHERE q.name = p_queue;
    END IF;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = subscribe_v1.queue_id AND g.name = p_group;
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
            v_now
        FROM queen.queues AS q
        LEFT JOIN queen.retired_groups AS r ON r.queue_id = q.id AND r.name = p_group
        WHERE q.id = subscribe_v1.queue_id
        ON CONFLICT DO NOTHING;
        SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = subscribe_v1.queue_id AND g.name = p_group;
    END IF;
    IF v_group.subscribed_upto < 9223372036854775807 THEN
        v_group.subscribed_upto := queen.make_cursors(v_group.id, p_step);
    END IF;
    IF v_group.starts_at < v_now THEN
        PERFORM queen.skip_to(v_group.id, v_group.starts_at);
        v_group.starts_at := NULL;
    END IF;
    grp_id := v_group.id;
    complete := v_group.subscribed_upto = 9223372036854775807;
    starts_in := extract(epoch FROM v_group.starts_at - v_now);
END $$;
COMMENT ON FUNCTION queen.subscribe_v1 IS 'The number of a consumer group on a queue; makes the group at its first contact.';

-- Makes the next p_step cursors of a group that is subscribing; returns the partition up to which it has them all.
-- A partition made after the group has a cursor already, and is passed over.
CREATE OR REPLACE FUNCTION queen.make_cursors(p_grp bigint, p_step int) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_group queen.consumer_groups_metadata;
    v_parts bigint[];
    v_since timestamptz;
    v_now timestamptz := queen.write_clock();
BEGIN
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp FOR UPDATE;
    IF v_group.subscribed_upto = 9223372036854775807 THEN
        RETURN v_group.subscribed_upto;
    END IF;
    -- What has waited too long is not for a new group; queue mode, of which there always was one, gives it up.
    SELECT CASE
        WHEN q.max_wait_time_seconds = 0 OR v_group.name = '__QUEUE_MODE__' THEN v_group.since
        ELSE greatest(
            v_group.since,
            queen.older_than(make_interval(secs => q.max_wait_time_seconds), NULL) - interval '1 microsecond')
    END INTO v_since
    FROM queen.queues AS q WHERE q.id = v_group.queue_id;
    SELECT array_agg(u.id) INTO v_parts
    FROM (
        SELECT p.id FROM queen.partitions AS p
        WHERE p.queue_id = v_group.queue_id AND p.id > v_group.subscribed_upto ORDER BY p.id LIMIT p_step
    ) AS u;
    -- The partitions are locked while their cursors are made: one at the end of the log is parked, and no push may slip in.
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = ANY(v_parts) ORDER BY h.part_id FOR UPDATE;
    INSERT INTO queen.partition_consumers (part_id, grp_id, acked, ahead, upto, seen, ready_at)
    SELECT h.part_id, p_grp, s.acked, s.ahead, s.acked, s.acked,
        CASE WHEN s.acked < h.next_off - 1 THEN v_now ELSE 'infinity' END
    FROM queen.log_ends AS h
    CROSS JOIN LATERAL queen.cursor_after(h.part_id, queen.last_before(h.part_id, v_since)) AS s
    WHERE h.part_id = ANY(v_parts) AND NOT EXISTS (
        SELECT 1 FROM queen.partition_consumers AS c WHERE c.part_id = h.part_id AND c.grp_id = p_grp);
    UPDATE queen.consumer_groups_metadata AS g
    SET subscribed_upto = CASE
        WHEN coalesce(cardinality(v_parts), 0) < p_step THEN 9223372036854775807 ELSE v_parts[cardinality(v_parts)]
    END
    WHERE g.id = p_grp RETURNING g.subscribed_upto INTO v_group.subscribed_upto;
    RETURN v_group.subscribed_upto;
END $$;
COMMENT ON FUNCTION queen.make_cursors IS 'Internal: makes cursors for a group that is subscribing, some partitions at a time.';

-- A group whose start lay in the future has reached it: what was pushed until then is passed over.
CREATE OR REPLACE FUNCTION queen.skip_to(p_grp bigint, p_since timestamptz) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE queen.consumer_groups_metadata AS g SET starts_at = NULL WHERE g.id = p_grp AND g.starts_at IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- A push that has the time of its messages from before the start, and is not committed yet, holds its partition.
    PERFORM 1 FROM queen.partition_locks AS h
    WHERE h.part_id IN (SELECT l.part_id FROM queen.partition_consumers AS l WHERE l.grp_id = p_grp)
    ORDER BY h.part_id FOR UPDATE;
    UPDATE queen.partition_consumers AS c SET acked = u.acked, ahead = u.ahead, upto = u.acked, seen = u.acked, ver = c.ver + 1
    FROM (
        SELECT l.part_id, s.acked, s.ahead FROM queen.partition_consumers AS l
        -- What is done ahead of it stays so: acks and moves to the dead letters need no pop.
        CROSS JOIN LATERAL queen.advance(queen.last_before(l.part_id, p_since), l.ahead) AS s
        WHERE l.grp_id = p_grp ORDER BY l.part_id FOR UPDATE OF l
    ) AS u
    WHERE c.part_id = u.part_id AND c.grp_id = p_grp AND c.acked < u.acked;
END $$;
COMMENT ON FUNCTION queen.skip_to IS 'Internal: moves the cursors of a group over what was created at or before its start.';
