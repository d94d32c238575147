-- Purpose:   recounts the messages of the queue that has waited longest for it, because a push could not count so many.
-- Returns:   whether there was one.
-- Locks:     nothing while it counts; then what is known of the size of the queue.
-- Writes:    queue_sizes.
CREATE OR REPLACE FUNCTION queen.count_backlog_v1() RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_before queen.queue_sizes;
    v_counted bigint;
    v_size queen.queue_sizes;
BEGIN
    SELECT * INTO v_before FROM queen.queue_sizes AS s WHERE s.asked_at IS NOT NULL ORDER BY s.asked_at LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_counted := queen.backlog(v_before.queue_id, NULL);
    v_size := queen.lock_size(v_before.queue_id);
    -- Pushes of the meantime may or may not be counted, so they are added. After a reset the count is void, and is
    -- repeated.
    UPDATE queen.queue_sizes AS s
    SET most = least(s.most, v_counted + s.pushed - v_before.pushed), asked_at = NULL, ver = s.ver + 1
    WHERE s.queue_id = v_size.queue_id AND s.ver = v_size.ver AND s.resets = v_before.resets;
    RETURN true;
END $$;
COMMENT ON FUNCTION queen.count_backlog_v1 IS 'Recounts the messages of a queue with a maximum size.';
