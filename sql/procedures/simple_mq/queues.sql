-- Purpose:   creates a queue with an id that the caller has chosen. A second call with the same id changes nothing.
-- Returns:   false when there are p_queues_max queues already, dead-letter queues not counted (0: no limit).
-- Locks:     with a limit, an advisory lock, so that the limit is exact.  Writes: queues, counts.
CREATE OR REPLACE FUNCTION simple_mq.create_queue_v1(
    p_queue uuid, p_name text, p_size int, p_visibility_timeout int, p_max_deliveries int, p_max_message_bytes int,
    p_queues_max int
) RETURNS bool
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_queues_max > 0 THEN
        PERFORM pg_advisory_xact_lock(7564657, -1);
        IF (SELECT count(*) FROM simple_mq.queues AS q WHERE q.parent_id IS NULL AND q.queue_id <> p_queue) >= p_queues_max THEN
            RETURN false;
        END IF;
    END IF;
    INSERT INTO simple_mq.queues (
        queue_id, queue_name, queue_size, visibility_timeout, max_deliveries, max_message_bytes, created_at
    )
    VALUES (p_queue, p_name, p_size, p_visibility_timeout, p_max_deliveries, p_max_message_bytes, queen.clock())
    ON CONFLICT DO NOTHING;
    PERFORM simple_mq.open_counts(p_queue);
    RETURN true;
END $$;
COMMENT ON FUNCTION simple_mq.create_queue_v1 IS 'Creates a queue.';

-- Returns:   the queue's settings and its message count; no row when there is no such queue.
CREATE OR REPLACE FUNCTION simple_mq.describe_queue_v1(p_queue uuid)
RETURNS TABLE (
    queue_name text, queue_size int, visibility_timeout int, max_deliveries int, max_message_bytes int, dlq_id uuid,
    messages bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT
        q.queue_name, q.queue_size, q.visibility_timeout, q.max_deliveries, q.max_message_bytes, q.dlq_id,
        simple_mq.message_count(q.queue_id)
    FROM simple_mq.queues AS q WHERE q.queue_id = p_queue;
$$;
COMMENT ON FUNCTION simple_mq.describe_queue_v1 IS 'Settings and message count of a queue.';

-- Purpose:   shows queues, dead-letter queues too, in the order of their ids, which is about that of their creation.
-- Arguments: p_search: a text in names, in lower case (empty: all); p_after: the id behind which to go on (null: the
--            first page).
-- Returns:   at most p_limit queues, as simple_mq.describe_queue_v1 has them, and whose dead letters they hold.
CREATE OR REPLACE FUNCTION simple_mq.list_queues_v1(p_search text, p_after uuid, p_limit int)
RETURNS TABLE (
    queue_id uuid, parent_id uuid, queue_name text, queue_size int, visibility_timeout int, max_deliveries int,
    max_message_bytes int, dlq_id uuid, messages bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT
        q.queue_id, q.parent_id, q.queue_name, q.queue_size, q.visibility_timeout, q.max_deliveries,
        q.max_message_bytes, q.dlq_id, simple_mq.message_count(q.queue_id)
    FROM (
        SELECT n.* FROM simple_mq.queues AS n
        WHERE n.queue_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')
            AND strpos(lower(n.queue_name), p_search) > 0
        ORDER BY n.queue_id LIMIT p_limit
    ) AS q
    ORDER BY q.queue_id;
END $$;
COMMENT ON FUNCTION simple_mq.list_queues_v1 IS 'A page of queues with their settings and message counts.';

-- Purpose:   deletes a queue: after the commit, queue and messages are invisible. simple_mq.purge_v1 removes the rows
--            of the messages, step by step, because there may be millions.
-- Returns:   deleted, unknown, or the id of the queue whose dead-letter queue it is, which has to go first.
-- Locks:     the parent's queue row, its own, then its counts: enqueues and moves that are under way end before.
CREATE OR REPLACE FUNCTION simple_mq.delete_queue_v1(p_queue uuid) RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    v_parent uuid;
BEGIN
    SELECT q.queue_id INTO v_parent FROM simple_mq.queues AS q WHERE q.dlq_id = p_queue FOR SHARE;
    IF FOUND THEN
        RETURN v_parent;
    END IF;
    DELETE FROM simple_mq.queues AS q WHERE q.queue_id = p_queue;
    IF NOT FOUND THEN
        RETURN 'unknown';
    END IF;
    PERFORM 1 FROM simple_mq.counts AS c WHERE c.queue_id = p_queue ORDER BY c.shard FOR UPDATE;
    DELETE FROM simple_mq.counts AS c WHERE c.queue_id = p_queue;
    DELETE FROM simple_mq.heads AS h WHERE h.queue_id = p_queue;
    DELETE FROM simple_mq.outcomes AS o WHERE o.queue_id = p_queue;
    INSERT INTO simple_mq.deleted_queues (queue_id) VALUES (p_queue) ON CONFLICT DO NOTHING;
    RETURN 'deleted';
END $$;
COMMENT ON FUNCTION simple_mq.delete_queue_v1 IS 'Deletes a queue; simple_mq.purge_v1 removes its messages.';

-- Purpose:   removes messages of deleted queues, at most p_step.
-- Returns:   how many; fewer than p_step: that was all.
CREATE OR REPLACE FUNCTION simple_mq.purge_v1(p_step int) RETURNS int
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_queue uuid;
    v_rows int;
    v_total int := 0;
BEGIN
    FOR v_queue IN SELECT d.queue_id FROM simple_mq.deleted_queues AS d ORDER BY d.queue_id FOR UPDATE SKIP LOCKED LOOP
        DELETE FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue AND m.message_id IN (
            SELECT l.message_id FROM simple_mq.messages AS l WHERE l.queue_id = v_queue LIMIT p_step - v_total
        );
        GET DIAGNOSTICS v_rows = ROW_COUNT;
        v_total := v_total + v_rows;
        EXIT WHEN v_total >= p_step;
        DELETE FROM simple_mq.deleted_queues AS d WHERE d.queue_id = v_queue;
    END LOOP;
    RETURN v_total;
END $$;
COMMENT ON FUNCTION simple_mq.purge_v1 IS 'Removes messages of deleted queues, a bounded number at a time.';
