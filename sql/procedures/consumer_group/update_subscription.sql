-- Purpose:   changes the stored start of a group of a queue. Cursors stay where they are. A group whose start lies ahead
--            waits for the new one instead, or begins now if that is not ahead.
-- Returns:   whether the queue has the group.
-- Locks:     the queue against deletion, the group; partitions in part_id order if the group begins.
-- Writes:    consumer_groups_metadata, partition_consumers.
CREATE OR REPLACE FUNCTION queen.update_subscription_v1(p_queue text, p_group text, p_since timestamptz) RETURNS bool
LANGUAGE plpgsql
AS $$
DECLARE
    v_queue bigint;
    v_group queen.consumer_groups_metadata;
    v_waits bool;
BEGIN
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR KEY SHARE;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.name = p_group FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_waits := coalesce(v_group.starts_at >= queen.clock(), false) AND p_since >= queen.clock();
    IF NOT v_waits THEN
        PERFORM queen.begin_group(v_group.id);
    END IF;
    UPDATE queen.consumer_groups_metadata AS g
    SET subscription_mode = 'timestamp', since = p_since, starts_at = CASE WHEN v_waits THEN p_since END
    WHERE g.id = v_group.id;
    RETURN true;
END $$;
COMMENT ON FUNCTION queen.update_subscription_v1 IS 'Changes the stored start of a group of a queue.';
