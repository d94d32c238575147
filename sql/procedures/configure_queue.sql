-- Purpose:   makes a queue, or replaces the options of one that exists; makes its partition Default.
-- Arguments: the options, null for: not set by anyone.
-- Returns:   numbers of the queue and of its partition Default.
-- Locks:     the queue row; when encryption or maximum size change, all partitions of the queue in part_id order, then its size; when delays
--            change, all its cursors in (part_id, grp_id) order.
-- Writes:    queues, partitions, partition_locks, partition_consumers, push_options and queue_sizes (when encryption or maximum size
--            change).
CREATE OR REPLACE FUNCTION queen.configure_queue_v1(
    p_queue text, p_namespace text, p_task text, p_priority int, p_lease_time int, p_retry_limit int, p_retry_delay int,
    p_delayed_processing int, p_window_buffer int, p_dead_letter_queue bool, p_dlq_after_max_retries bool,
    p_retention_enabled bool, p_retention_seconds int, p_completed_retention_seconds int, p_ttl int,
    p_max_wait_time_seconds int, p_max_size int, p_encryption_enabled bool,
    OUT queue_id bigint, OUT part_id bigint
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    v_old queen.queues;
    v_changes bool;
BEGIN
    SELECT * INTO v_old FROM queen.queues AS q WHERE q.name = p_queue FOR NO KEY UPDATE;
    INSERT INTO queen.queues AS q (
        name, namespace, task, priority, lease_time, retry_limit, retry_delay, delayed_processing, window_buffer,
        dead_letter_queue, dlq_after_max_retries, retention_enabled, retention_seconds, completed_retention_seconds, ttl,
        max_wait_time_seconds, max_size, encryption_enabled, ever_encrypted
    )
    VALUES (
        p_queue, p_namespace, p_task, p_priority, p_lease_time, p_retry_limit, p_retry_delay, p_delayed_processing,
        p_window_buffer, p_dead_letter_queue, p_dlq_after_max_retries, p_retention_enabled, p_retention_seconds,
        p_completed_retention_seconds, p_ttl, p_max_wait_time_seconds, p_max_size, p_encryption_enabled,
        p_encryption_enabled
    )
    ON CONFLICT (name) DO UPDATE SET
        namespace = excluded.namespace, task = excluded.task, priority = excluded.priority,
        lease_time = excluded.lease_time, retry_limit = excluded.retry_limit, retry_delay = excluded.retry_delay,
        delayed_processing = excluded.delayed_processing, window_buffer = excluded.window_buffer,
        dead_letter_queue = excluded.dead_letter_queue, dlq_after_max_retries = excluded.dlq_after_max_retries,
        retention_enabled = excluded.retention_enabled, retention_seconds = excluded.retention_seconds,
        completed_retention_seconds = excluded.completed_retention_seconds, ttl = excluded.ttl,
        max_wait_time_seconds = excluded.max_wait_time_seconds, max_size = excluded.max_size,
        encryption_enabled = excluded.encryption_enabled, ever_encrypted = q.ever_encrypted OR excluded.ever_encrypted
    RETURNING q.id INTO queue_id;
    v_changes := (coalesce(v_old.encryption_enabled, false), coalesce(v_old.max_size, 0)) <> (p_encryption_enabled, p_max_size);
    IF v_changes THEN
        -- Pushes that hold their partitions were laid out under the old options: they are stored before this, and all others see it.
        PERFORM 1 FROM queen.partition_locks AS h
        JOIN queen.partitions AS p ON p.id = h.part_id AND p.queue_id = configure_queue_v1.queue_id
        ORDER BY h.part_id FOR UPDATE OF h;
    END IF;
    IF p_max_size > 0 AND coalesce(v_old.max_size, 0) = 0 THEN
        PERFORM queen.begin_size(queue_id);
    ELSIF v_old.max_wait_time_seconds <> p_max_wait_time_seconds THEN
        -- A group that has not all its cursors begins elsewhere now (queen.start_of).
        PERFORM queen.forget_size(queue_id);
    END IF;
    IF v_old.id IS NOT NULL
        AND (v_old.delayed_processing, v_old.window_buffer) <> (p_delayed_processing, p_window_buffer) THEN
        PERFORM queen.judge_anew(queue_id);
    END IF;
    -- Last of all, because everybody else who changes such options waits for this row.
    PERFORM queen.make_partitions(ARRAY[p_queue], ARRAY['Default']);
    IF v_changes THEN
        UPDATE queen.push_options SET version = version + 1 WHERE id;
    END IF;
    SELECT p.id INTO part_id FROM queen.partitions AS p
    WHERE p.queue_id = configure_queue_v1.queue_id AND p.name = 'Default';
END $$;
COMMENT ON FUNCTION queen.configure_queue_v1 IS 'Makes a queue, or replaces the options of one that exists.';

-- Waits that the old delays had set may be too long under the new ones: the next pop judges anew. A retry's time stays. All
-- cursors are locked first, because a pop that is under way may just be setting such a wait; one that comes later finds the new options.
CREATE OR REPLACE FUNCTION queen.judge_anew(p_queue_id bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_groups bigint[];
    v_now timestamptz;
BEGIN
    SELECT array_agg(g.id) INTO v_groups FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue_id;
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.grp_id = ANY(v_groups) ORDER BY c.part_id, c.grp_id FOR UPDATE;
    v_now := queen.write_clock();
    UPDATE queen.partition_consumers AS c SET ready_at = greatest(v_now, c.retry_at), ver = c.ver + 1
    WHERE c.grp_id = ANY(v_groups) AND c.lease IS NULL AND c.ready_at > v_now AND c.ready_at < 'infinity';
END $$;
COMMENT ON FUNCTION queen.judge_anew IS 'Internal: makes the cursors of a queue ready that waited for a delay which no longer holds.';
