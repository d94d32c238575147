-- Purpose:   changes the stored start of a group of a queue. Cursors stay where they are. A group whose start lies
--            ahead waits for the new one instead, or begins now if that is not ahead.
-- Arguments: p_step  cursors of a page
-- Returns:   known: whether the queue has the group; changed: false asks for another call, because the group has not
--            all its cursors yet, which are to stand where it began.
-- Locks:     the queue against deletion, the group; partitions in part_id order and cursors, if it has not all of them.
-- Writes:    consumer_groups_metadata, partition_consumers.
CREATE OR REPLACE FUNCTION queen.update_subscription_v1(
    p_queue text, p_group text, p_since timestamptz, p_step int, OUT known bool, OUT changed bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue bigint;
    v_group queen.consumer_groups_metadata;
    v_now timestamptz;
    v_waits bool;
BEGIN
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR KEY SHARE;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.name = p_group AND g.subscribed_upto >= 0 FOR UPDATE;
    known := FOUND;
    changed := false;
    IF NOT known THEN
        RETURN;
    END IF;
    v_now := queen.clock();
    v_waits := NOT v_group.begins AND coalesce(v_group.starts_at >= v_now, false) AND p_since >= v_now;
    IF NOT v_waits AND queen.prepare_group(v_group.id, p_step) THEN
        RETURN;
    END IF;
    UPDATE queen.consumer_groups_metadata AS g
    SET subscription_mode = 'timestamp', since = p_since, starts_at = CASE WHEN v_waits THEN p_since END
    WHERE g.id = v_group.id;
    changed := true;
END $$;
COMMENT ON FUNCTION queen.update_subscription_v1 IS 'Changes the stored starting point of a group of a queue.';
