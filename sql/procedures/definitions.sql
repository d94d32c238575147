-- Purpose:   what a database that is added to an installation has to know before partitions are made there: options of
--            queues, groups with their beginnings and pauses, streams, switches.
-- Returns:   one row per definition, in the order in which they can be taken.
CREATE OR REPLACE FUNCTION queen.read_definitions_v1() RETURNS TABLE (kind text, definition jsonb)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT 'queue', to_jsonb(q) - 'id' FROM queen.queues AS q
    UNION ALL
    SELECT 'group', (to_jsonb(g) - ARRAY['id', 'queue_id', 'subscribed_upto']) || jsonb_build_object('queue', q.name)
    FROM queen.consumer_groups_metadata AS g JOIN queen.queues AS q ON q.id = g.queue_id WHERE g.subscribed_upto >= 0
    UNION ALL
    SELECT 'stream', to_jsonb(s) FROM queen.streams AS s
    UNION ALL
    SELECT 'switch', jsonb_build_object('key', s.key, 'value', s.value)
    FROM queen.system_state AS s WHERE jsonb_typeof(s.value) = 'boolean';
END;
COMMENT ON FUNCTION queen.read_definitions_v1 IS 'Options of queues, groups, streams and switches, for another database.';

-- Purpose:   makes definitions of another database here, or gives those that exist the same content: this database is
--            being added, and a group that begins may have made its queue with other options.
-- Arguments: one element per definition, as queen.read_definitions_v1 returns them: p_kind, p_definition
-- Writes:    queues, queue_sizes, push_options, consumer_groups_metadata, streams, system_state.
CREATE OR REPLACE FUNCTION queen.take_definitions_v1(p_kind text[], p_definition jsonb[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen.queues OVERRIDING SYSTEM VALUE
    SELECT r.* FROM unnest(p_kind, p_definition) AS u (kind, definition)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::queen.queues, u.definition || jsonb_build_object(
        'id', nextval(pg_get_serial_sequence('queen.queues', 'id')))) AS r
    WHERE u.kind = 'queue'
    ON CONFLICT (name) DO UPDATE SET
        namespace = excluded.namespace, task = excluded.task, priority = excluded.priority,
        lease_time = excluded.lease_time, retry_limit = excluded.retry_limit, retry_delay = excluded.retry_delay,
        delayed_processing = excluded.delayed_processing, window_buffer = excluded.window_buffer,
        dead_letter_queue = excluded.dead_letter_queue, dlq_after_max_retries = excluded.dlq_after_max_retries,
        created_at = excluded.created_at, retention_enabled = excluded.retention_enabled,
        retention_seconds = excluded.retention_seconds,
        completed_retention_seconds = excluded.completed_retention_seconds, ttl = excluded.ttl,
        max_wait_time_seconds = excluded.max_wait_time_seconds, max_size = excluded.max_size,
        encryption_enabled = excluded.encryption_enabled, ever_encrypted = excluded.ever_encrypted,
        paused = excluded.paused, sql_push = excluded.sql_push, colocate_with = excluded.colocate_with;
    INSERT INTO queen.queue_sizes (queue_id)
    SELECT q.id FROM queen.queues AS q
    WHERE q.max_size > 0 AND NOT EXISTS (SELECT 1 FROM queen.queue_sizes AS z WHERE z.queue_id = q.id);
    UPDATE queen.push_options SET version = version + 1 WHERE id;
    INSERT INTO queen.consumer_groups_metadata OVERRIDING SYSTEM VALUE
    SELECT r.* FROM unnest(p_kind, p_definition) AS u (kind, definition)
    JOIN queen.queues AS q ON q.name = u.definition ->> 'queue'
    CROSS JOIN LATERAL jsonb_populate_record(NULL::queen.consumer_groups_metadata, u.definition || jsonb_build_object(
        'id', nextval(pg_get_serial_sequence('queen.consumer_groups_metadata', 'id')), 'queue_id', q.id,
        'subscribed_upto', 0)) AS r
    WHERE u.kind = 'group'
    ON CONFLICT (queue_id, name) DO UPDATE SET paused = excluded.paused;
    INSERT INTO queen.streams OVERRIDING SYSTEM VALUE
    SELECT r.* FROM unnest(p_kind, p_definition) AS u (kind, definition)
    CROSS JOIN LATERAL jsonb_populate_record(NULL::queen.streams, u.definition) AS r
    WHERE u.kind = 'stream'
    ON CONFLICT DO NOTHING;
    INSERT INTO queen.system_state (key, value, updated_at)
    SELECT u.definition ->> 'key', u.definition -> 'value', clock_timestamp()
    FROM unnest(p_kind, p_definition) AS u (kind, definition)
    WHERE u.kind = 'switch'
    ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at;
END $$;
COMMENT ON FUNCTION queen.take_definitions_v1 IS 'Makes queues, groups, streams and switches as another database has them.';
