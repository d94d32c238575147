-- Purpose:   reads what a push has to know of queues. Workers cache it under its version.
-- Returns:   one row per queue that is encrypted, has a maximum size or follows another queue, and always one without a queue; each with the
--            version.
CREATE OR REPLACE FUNCTION queen.read_push_options_v1()
RETURNS TABLE (version bigint, queue text, queue_id bigint, encrypted bool, max_size int, colocate_with text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT o.version, q.name, q.id, q.encryption_enabled, q.max_size, q.colocate_with
    FROM queen.push_options AS o
    LEFT JOIN queen.queues AS q ON q.encryption_enabled OR q.max_size > 0 OR q.colocate_with IS NOT NULL
    WHERE o.id;
END;
COMMENT ON FUNCTION queen.read_push_options_v1 IS 'Queues that are encrypted, have a maximum size or follow another queue.';
