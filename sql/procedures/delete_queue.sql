-- Purpose:   deletes a queue, in pages: a queue of several pages loses whole partitions first, and is gone with the
--            last page. queen.purge_partitions_v1 removes the contents of the partitions later.
-- Arguments: p_step  partitions and cursors of a page; at least one partition goes
-- Returns:   existed: whether there was such a queue; more: whether it is still there, without some of its partitions.
-- Locks:     the queue row; with the last page its groups; then partitions and cursors of the page in the order of all
--            other procedures.
-- Writes:    as the deletion of a queue; removed_partitions.
CREATE OR REPLACE FUNCTION queen.delete_queue_v1(p_queue text, p_step int, OUT existed bool, OUT more bool)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_queue bigint;
    v_partitions int;
    v_parts bigint[];
    v_timers int;
BEGIN
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR UPDATE;
    existed := FOUND;
    more := false;
    IF NOT existed THEN
        RETURN;
    END IF;
    -- Before partitions are locked, as a move of timers locks those first.
    DELETE FROM queen.timers AS t WHERE t.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.timers AS l WHERE l.queue_id = v_queue LIMIT p_step));
    GET DIAGNOSTICS v_timers = ROW_COUNT;
    IF v_timers = p_step THEN
        more := true;
        RETURN;
    END IF;
    v_partitions := greatest(1, p_step / (
        1 + (SELECT count(*) FROM (SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = v_queue LIMIT p_step) AS u)));
    v_parts := ARRAY(
        SELECT p.id FROM queen.partitions AS p WHERE p.queue_id = v_queue ORDER BY p.name LIMIT v_partitions + 1);
    more := cardinality(v_parts) > v_partitions;
    v_parts := v_parts[:v_partitions];
    IF NOT more THEN
        PERFORM queen.lock_groups(v_queue);
    END IF;
    PERFORM queen.hide_partitions(v_parts);
    INSERT INTO queen.removed_partitions (part_id) SELECT u FROM unnest(v_parts) AS u;
    IF NOT more THEN
        DELETE FROM queen.queues AS q WHERE q.id = v_queue;
    END IF;
END $$;
COMMENT ON FUNCTION queen.delete_queue_v1 IS 'Deletes a queue with all its contents, a page of partitions at a time.';

-- Purpose:   removes the contents of partitions of deleted queues, and then their timers, at most p_step rows.
-- Returns:   whether there is more.
-- Locks:     rows of removed_partitions, with SKIP LOCKED: two may do it at once.
CREATE OR REPLACE FUNCTION queen.purge_partitions_v1(p_step int) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_page CONSTANT int := 100;
    v_parts bigint[];
BEGIN
    v_parts := ARRAY(
        SELECT r.part_id FROM queen.removed_partitions AS r
        WHERE r.not_before <= clock_timestamp() ORDER BY r.part_id LIMIT v_page FOR UPDATE SKIP LOCKED);
    IF queen.empty_partitions(v_parts, p_step) = p_step THEN
        RETURN true;
    END IF;
    DELETE FROM queen.removed_partitions AS r WHERE r.part_id = ANY(v_parts);
    IF cardinality(v_parts) = v_page THEN
        RETURN true;
    END IF;
    RETURN queen.purge_timers(p_step);
END $$;
COMMENT ON FUNCTION queen.purge_partitions_v1 IS
    'Removes the contents of partitions of deleted queues, a bounded number of rows at a time.';

-- Timers of queues that are gone: queen.push had made them in a transaction that committed after the deletion. Says whether
-- there may be more. It looks at one timer per queue.
CREATE OR REPLACE FUNCTION queen.purge_timers(p_step int) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_deleted int;
BEGIN
    WITH RECURSIVE found AS (
        SELECT min(t.queue_id) AS queue_id FROM queen.timers AS t
        UNION ALL
        SELECT (SELECT min(t.queue_id) FROM queen.timers AS t WHERE t.queue_id > f.queue_id)
        FROM found AS f WHERE f.queue_id IS NOT NULL
    )
    DELETE FROM queen.timers AS t WHERE t.ctid = ANY(ARRAY(
        SELECT l.ctid
        FROM found AS f
        CROSS JOIN LATERAL (
            SELECT o.ctid FROM queen.timers AS o WHERE o.queue_id = f.queue_id LIMIT p_step FOR UPDATE SKIP LOCKED
        ) AS l
        WHERE NOT EXISTS (SELECT 1 FROM queen.queues AS q WHERE q.id = f.queue_id) LIMIT p_step));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted = p_step;
END $$;
COMMENT ON FUNCTION queen.purge_timers IS 'Internal: removes timers of deleted queues.';

-- The rows of groups come before partitions: a group that is making its cursors holds its row.
CREATE OR REPLACE FUNCTION queen.lock_groups(p_queue_id bigint) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM 1 FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue_id ORDER BY g.id FOR UPDATE;
END $$;
COMMENT ON FUNCTION queen.lock_groups IS 'Internal: locks the groups of a queue.';

-- The same for a DELETE in psql, at once.
CREATE OR REPLACE FUNCTION queen.empty_queue() RETURNS trigger
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_parts bigint[];
BEGIN
    DELETE FROM queen.timers AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.schedules AS s WHERE s.queue_id = old.id;
    PERFORM queen.lock_groups(old.id);
    SELECT array_agg(p.id ORDER BY p.id) INTO v_parts FROM queen.partitions AS p WHERE p.queue_id = old.id;
    PERFORM queen.remove_partitions(v_parts);
    DELETE FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = old.id;
    DELETE FROM queen.retired_groups AS g WHERE g.queue_id = old.id;
    DELETE FROM queen.group_stats AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.queue_stats AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.queue_sizes AS s WHERE s.queue_id = old.id;
    IF old.encryption_enabled OR old.max_size > 0 THEN
        UPDATE queen.push_options SET version = version + 1 WHERE id;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.empty_queue IS 'Trigger: removes all contents of a deleted queue.';
CREATE OR REPLACE TRIGGER empty_queue AFTER DELETE ON queen.queues FOR EACH ROW EXECUTE FUNCTION queen.empty_queue();
