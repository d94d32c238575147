-- Purpose:   creates a queue, or replaces the options of one that exists; creates its partition Default.
-- Arguments: the options; null: not set
--            p_colocate_with  null: as it is; it cannot change (QN008)
--            p_step  up to so many partitions and cursors, the call itself does what a change requires in them. In a queue
--                    with more, queen.settle_queue_v1 does that, in pages.
-- Returns:   numbers of the queue and of its partition Default; more: whether there are pages to do. One of several
--            databases makes no partition, and answers null if it does not have it.
-- Locks:     the queue row; then as queen.settle.
-- Writes:    queues, partitions, partition_locks, partition_consumers, push_options (when encryption or maximum size
--            change), queue_sizes, pending_configurations.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]), queue_id + 0.
CREATE OR REPLACE FUNCTION queen.configure_queue_v1(
    p_queue text, p_namespace text, p_task text, p_priority int, p_lease_time int, p_retry_limit int, p_retry_delay int,
    p_delayed_processing int, p_window_buffer int, p_dead_letter_queue bool, p_dlq_after_max_retries bool,
    p_retention_enabled bool, p_retention_seconds int, p_completed_retention_seconds int, p_ttl int,
    p_max_wait_time_seconds int, p_max_size int, p_encryption_enabled bool,
    p_step int, p_sql_push bool DEFAULT true, p_colocate_with text DEFAULT NULL,
    OUT queue_id bigint, OUT part_id bigint, OUT more bool
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_old queen.queues;
    v_pushes bool;   -- there may be pushes that were laid out under other options, and would be stored all the same
    v_limits bool;   -- which do not count what they leave in the queue, because it had no maximum size
    v_waits bool;    -- cursors may be waiting for longer than they have to, under the new delays
    v_forgets bool;  -- what is known of the size may be wrong: pushes did not count, or groups that are being made begin elsewhere
    v_page record;
BEGIN
    SELECT * INTO v_old FROM queen.queues AS q WHERE q.name = p_queue FOR NO KEY UPDATE;
    IF v_old.id IS NOT NULL AND p_colocate_with <> coalesce(v_old.colocate_with, p_queue) THEN
        RAISE EXCEPTION 'queue % has another place for its partitions', p_queue USING ERRCODE = 'QN008';
    END IF;
    INSERT INTO queen.queues AS q (
        name, namespace, task, priority, lease_time, retry_limit, retry_delay, delayed_processing, window_buffer,
        dead_letter_queue, dlq_after_max_retries, retention_enabled, retention_seconds, completed_retention_seconds, ttl,
        max_wait_time_seconds, max_size, encryption_enabled, ever_encrypted, sql_push, colocate_with
    )
    VALUES (
        p_queue, p_namespace, p_task, p_priority, p_lease_time, p_retry_limit, p_retry_delay, p_delayed_processing,
        p_window_buffer, p_dead_letter_queue, p_dlq_after_max_retries, p_retention_enabled, p_retention_seconds,
        p_completed_retention_seconds, p_ttl, p_max_wait_time_seconds, p_max_size, p_encryption_enabled,
        p_encryption_enabled, p_sql_push, p_colocate_with
    )
    ON CONFLICT (name) DO UPDATE SET
        namespace = excluded.namespace, task = excluded.task, priority = excluded.priority,
        lease_time = excluded.lease_time, retry_limit = excluded.retry_limit, retry_delay = excluded.retry_delay,
        delayed_processing = excluded.delayed_processing, window_buffer = excluded.window_buffer,
        dead_letter_queue = excluded.dead_letter_queue, dlq_after_max_retries = excluded.dlq_after_max_retries,
        retention_enabled = excluded.retention_enabled, retention_seconds = excluded.retention_seconds,
        completed_retention_seconds = excluded.completed_retention_seconds, ttl = excluded.ttl,
        max_wait_time_seconds = excluded.max_wait_time_seconds, max_size = excluded.max_size,
        encryption_enabled = excluded.encryption_enabled, ever_encrypted = q.ever_encrypted OR excluded.ever_encrypted,
        sql_push = excluded.sql_push
    RETURNING q.id INTO queue_id;
    v_limits := coalesce(v_old.max_size, 0) = 0 AND p_max_size > 0;
    v_pushes := coalesce(v_old.encryption_enabled, false) <> p_encryption_enabled OR v_limits;
    v_waits := (v_old.delayed_processing, v_old.window_buffer) <> (p_delayed_processing, p_window_buffer);
    v_forgets := v_limits OR v_old.max_wait_time_seconds <> p_max_wait_time_seconds;
    IF v_limits THEN
        INSERT INTO queen.queue_sizes (queue_id) SELECT configure_queue_v1.queue_id
        WHERE NOT EXISTS (SELECT 1 FROM queen.queue_sizes AS z WHERE z.queue_id = configure_queue_v1.queue_id);
    END IF;
    v_page := queen.page_to_settle(queue_id, 0, v_waits, p_step);
    IF v_page.more AND (v_pushes OR v_waits) THEN
        INSERT INTO queen.pending_configurations (queue_id, pushes, limits, waits)
        VALUES (queue_id, v_pushes, v_limits, coalesce(v_waits, false));
        PERFORM queen.settle(queue_id, '{}', false, false, v_forgets);
    ELSE
        PERFORM queen.settle(queue_id, v_page.part_ids, v_pushes, v_waits, v_forgets);
    END IF;
    -- Last of all, because every other change of such options waits for this row.
    IF NOT EXISTS (SELECT FROM queen.shard_list AS l WHERE l.id) THEN
        PERFORM queen.make_partitions(ARRAY[p_queue], ARRAY['Default']);
    END IF;
    IF v_pushes OR coalesce(v_old.max_size, 0) <> p_max_size OR (v_old.id IS NULL AND p_colocate_with IS NOT NULL) THEN
        UPDATE queen.push_options SET version = version + 1 WHERE id;
    END IF;
    SELECT p.id INTO part_id FROM queen.partitions AS p
    WHERE p.queue_id = configure_queue_v1.queue_id AND p.name = 'Default';
    more := EXISTS (SELECT 1 FROM queen.pending_configurations AS c WHERE c.queue_id = configure_queue_v1.queue_id);
END $$;
COMMENT ON FUNCTION queen.configure_queue_v1 IS 'Creates a queue, or replaces the options of an existing one.';

-- Purpose:   does the next page of what a configure, of any caller, has left to do in a queue.
-- Arguments: p_step  partitions and cursors of a page; at least one partition is done
-- Returns:   woken: cursors that no longer wait; more: whether there are more pages.
-- Locks:     the row of the change, for which only such calls wait; then as queen.settle.
-- Writes:    partition_consumers, queue_sizes, pending_configurations.
CREATE OR REPLACE FUNCTION queen.settle_queue_v1(p_queue_id bigint, p_step int, OUT woken int, OUT more bool)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_change queen.pending_configurations;
    v_page record;
BEGIN
    SELECT * INTO v_change FROM queen.pending_configurations AS c
    WHERE c.queue_id = p_queue_id ORDER BY c.id LIMIT 1 FOR UPDATE;
    IF FOUND THEN
        v_page := queen.page_to_settle(p_queue_id, v_change.done_upto, v_change.waits, p_step);
        -- A count that began while not all pushes counted is void.
        woken := queen.settle(
            p_queue_id, v_page.part_ids, v_change.pushes, v_change.waits, v_change.limits AND NOT v_page.more);
        IF v_page.more THEN
            UPDATE queen.pending_configurations AS c SET done_upto = v_page.part_ids[cardinality(v_page.part_ids)]
            WHERE c.id = v_change.id;
        ELSE
            DELETE FROM queen.pending_configurations AS c WHERE c.id = v_change.id;
        END IF;
    END IF;
    woken := coalesce(woken, 0);
    more := EXISTS (SELECT 1 FROM queen.pending_configurations AS c WHERE c.queue_id = p_queue_id);
END $$;
COMMENT ON FUNCTION queen.settle_queue_v1 IS 'Applies changed options to the next partitions of a queue.';

-- The next p_step partitions of a queue, by id (counted with their cursors, if p_cursors), and whether there are more.
CREATE OR REPLACE FUNCTION queen.page_to_settle(
    p_queue_id bigint, p_after bigint, p_cursors bool, p_step int, OUT part_ids bigint[], OUT more bool
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_number int := p_step;
BEGIN
    IF p_cursors THEN
        v_number := greatest(1, p_step / greatest(1, (
            SELECT count(*)::int FROM (
                SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue_id LIMIT p_step) AS u)));
    END IF;
    part_ids := ARRAY(
        SELECT p.id FROM queen.partitions AS p
        WHERE p.queue_id + 0 = p_queue_id AND p.id + 0 > p_after ORDER BY p.id + 0 LIMIT v_number + 1);
    more := cardinality(part_ids) > v_number;
    part_ids := part_ids[:v_number];
END $$;
COMMENT ON FUNCTION queen.page_to_settle IS
    'Internal: the next partitions to which changed options have to be applied.';

-- Does what a change of the options requires in some partitions, ascending. p_pushes: waits for pushes that have locked
-- them, which were laid out under the old options; later pushes see the new version. p_waits: ends waits that the old
-- delays have set, which may be too long now; the next pop computes them again. The time of a retry stays. Cursors are
-- locked first, because a pop may just be setting such a wait; a later pop finds the new options. p_forgets: marks the
-- size of the queue as unknown. Returns how many cursors no longer wait.
-- Locks:     partitions if p_pushes, then the size if p_forgets, then cursors in (part_id, grp_id) order if p_waits.
CREATE OR REPLACE FUNCTION queen.settle(p_queue_id bigint, p_part bigint[], p_pushes bool, p_waits bool, p_forgets bool)
RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_part bigint[];
    v_grp bigint[];
    v_now timestamptz;
    v_woken int := 0;
BEGIN
    IF p_pushes THEN
        PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    END IF;
    IF p_forgets THEN
        PERFORM queen.forget_size(p_queue_id);
    END IF;
    IF p_waits THEN
        SELECT array_agg(u.part_id), array_agg(g.id) INTO v_part, v_grp
        FROM queen.consumer_groups_metadata AS g CROSS JOIN unnest(p_part) AS u (part_id)
        WHERE g.queue_id = p_queue_id;
        PERFORM queen.lock_cursors(NULL, v_part, v_grp);
        v_now := queen.write_clock();
        UPDATE queen.partition_consumers AS c SET ready_at = greatest(v_now, c.retry_at), ver = c.ver + 1
        FROM (
            SELECT u.part_id, u.grp_id, l.ver
            FROM unnest(v_part, v_grp) AS u (part_id, grp_id)
            CROSS JOIN LATERAL (
                SELECT o.ver, o.lease, o.ready_at FROM queen.partition_consumers AS o
                WHERE o.part_id = u.part_id AND o.grp_id = u.grp_id ORDER BY o.ver DESC LIMIT 1
            ) AS l
            WHERE l.lease IS NULL AND l.ready_at > v_now AND l.ready_at < 'infinity'
            OFFSET 0  -- the version first: not all of them
        ) AS u
        WHERE c.part_id = ANY(ARRAY[u.part_id]) AND c.grp_id = u.grp_id AND c.ver = u.ver;
        GET DIAGNOSTICS v_woken = ROW_COUNT;
    END IF;
    RETURN v_woken;
END $$;
COMMENT ON FUNCTION queen.settle IS 'Internal: applies changed options to some partitions.';

-- Purpose:   finds work that was begun in pages and may have been interrupted. To go on with it is safe, even while the
--            first caller still works on it.
-- Returns:   queues with pages of configure to do (consumer_group null; queue empty: deleted since), and groups that
--            are being deleted.
CREATE OR REPLACE FUNCTION queen.find_begun_v1() RETURNS TABLE (queue_id bigint, queue text, consumer_group text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT DISTINCT c.queue_id, coalesce(q.name, ''), NULL::text
    FROM queen.pending_configurations AS c LEFT JOIN queen.queues AS q ON q.id = c.queue_id
    UNION ALL
    SELECT g.queue_id, q.name, g.name
    FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id WHERE g.subscribed_upto < 0;
END;
COMMENT ON FUNCTION queen.find_begun_v1 IS 'Queues and groups with work in pages that has begun and is not finished.';
