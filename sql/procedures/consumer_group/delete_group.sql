-- Purpose:   deletes a consumer group of a queue; its next pop makes it anew. With p_subscription false the group begins
--            anew at once, where its stored subscription says.
-- Returns:   how many cursors were deleted or put back; null: the queue has no such group.
-- Locks:     the queue row, the group, partitions if it begins anew, cursors; each in part_id order.
-- Writes:    consumer_groups_metadata, retired_groups, partition_consumers, group_stats.
CREATE OR REPLACE FUNCTION queen.delete_group_v1(p_queue text, p_group text, p_subscription bool) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_queue bigint;
    v_group queen.consumer_groups_metadata;
    v_parts bigint[];
BEGIN
    -- No partition is made meanwhile: it would get a cursor of the group.
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR UPDATE;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.name = p_group FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT array_agg(c.part_id ORDER BY c.part_id) INTO v_parts
    FROM queen.partition_consumers AS c WHERE c.grp_id = v_group.id;
    IF p_subscription THEN
        PERFORM 1 FROM queen.partition_consumers AS c
        WHERE c.part_id = ANY(v_parts) AND c.grp_id = v_group.id ORDER BY c.part_id FOR UPDATE;
        DELETE FROM queen.partition_consumers AS c WHERE c.part_id = ANY(v_parts) AND c.grp_id = v_group.id;
        DELETE FROM queen.consumer_groups_metadata AS g WHERE g.id = v_group.id;
        DELETE FROM queen.group_stats AS t WHERE t.grp_id = v_group.id;
        INSERT INTO queen.retired_groups (queue_id, name, id) VALUES (v_queue, p_group, v_group.id) ON CONFLICT DO NOTHING;
    ELSIF v_parts IS NOT NULL THEN
        PERFORM queen.put_cursors(v_group.id, v_parts, false, v_group.since);
    END IF;
    RETURN coalesce(cardinality(v_parts), 0);
END $$;
COMMENT ON FUNCTION queen.delete_group_v1 IS 'Deletes a consumer group of a queue.';
