-- Purpose:   deletes a consumer group of a queue, in pages; its next pop creates it again. With p_subscription false
--            the group begins again where its stored subscription says.
-- Arguments: p_after  '' at first, then what the page before has returned as last: the partition, by name, up to which cursors
--                     were put back, or 'rest' where the group is being deleted
--            p_step   cursors of a page
-- Returns:   cursors that were deleted or put back, or that were still to be made (null: the queue has no such group, or
--            no longer), and last: call again with it as p_after (null: done).
-- Locks:     the queue row, the group, partitions if it begins again, the size of the queue, cursors; each in part_id
--            order.
-- Writes:    consumer_groups_metadata, retired_groups, partition_consumers, group_stats, queue_sizes.
CREATE OR REPLACE FUNCTION queen.delete_group_v1(
    p_queue text, p_group text, p_subscription bool, p_after text, p_step int, OUT cursors bigint, OUT last text
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_queue bigint;
    v_group queen.consumer_groups_metadata;
    v_parts bigint[];
    v_unmade bigint := 0;
BEGIN
    -- No partition must be made meanwhile: it would get a cursor of the group.
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR UPDATE;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.name = p_group FOR UPDATE;
    IF NOT FOUND OR (v_group.subscribed_upto < 0 AND NOT p_subscription) THEN
        RETURN;
    ELSIF v_group.subscribed_upto >= 0 AND p_subscription AND p_after = 'rest' THEN
        RETURN;  -- a pop has deleted the rest, and made it again
    END IF;
    IF NOT p_subscription THEN
        SELECT array_agg(u.id ORDER BY u.id), CASE WHEN count(*) = p_step THEN max(u.name) END INTO v_parts, last
        FROM (
            SELECT p.id, p.name FROM queen.partitions AS p
            WHERE p.queue_id = v_queue AND p.name > p_after ORDER BY p.name LIMIT p_step
        ) AS u;
        PERFORM queen.put_cursors(v_group.id, v_parts, v_group.since);
        cursors := coalesce(cardinality(v_parts), 0);  -- also those that are still to be made: they begin there, too
        RETURN;
    END IF;
    -- If no group is left, all kept messages count.
    PERFORM queen.forget_size(v_queue);
    IF p_after = '' THEN
        v_unmade := queen.unmade_cursors(v_group);
    END IF;
    SELECT array_agg(u.part_id ORDER BY u.part_id) INTO v_parts
    FROM (SELECT c.part_id FROM queen.partition_consumers AS c WHERE c.grp_id = v_group.id LIMIT p_step) AS u;
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.part_id = ANY(v_parts) AND c.grp_id = v_group.id ORDER BY c.part_id FOR UPDATE;
    DELETE FROM queen.partition_consumers AS c WHERE c.part_id = ANY(v_parts) AND c.grp_id = v_group.id;
    cursors := v_unmade + coalesce(cardinality(v_parts), 0);
    IF cardinality(v_parts) = p_step THEN
        -- A pop that comes between two pages, or after an interruption, deletes the rest before it makes the group
        -- again.
        UPDATE queen.consumer_groups_metadata AS g SET subscribed_upto = -1 WHERE g.id = v_group.id;
        last := 'rest';
        RETURN;
    END IF;
    DELETE FROM queen.consumer_groups_metadata AS g WHERE g.id = v_group.id;
    DELETE FROM queen.group_stats AS t WHERE t.grp_id = v_group.id;
    INSERT INTO queen.retired_groups (queue_id, name, id) VALUES (v_queue, p_group, v_group.id) ON CONFLICT DO NOTHING;
END $$;
COMMENT ON FUNCTION queen.delete_group_v1 IS 'Deletes a consumer group of a queue, a page of cursors at a time.';

-- Partitions in which a group has no cursor yet. They are read once, when the group is deleted before its last page is made.
CREATE OR REPLACE FUNCTION queen.unmade_cursors(p_group queen.consumer_groups_metadata) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF p_group.subscribed_upto < 0 OR p_group.subscribed_upto = 9223372036854775807 THEN
        RETURN 0;
    END IF;
    RETURN (
        SELECT count(*) FROM queen.partitions AS p
        WHERE p.queue_id = p_group.queue_id AND p.id > p_group.subscribed_upto AND (
            SELECT c.ver FROM queen.partition_consumers AS c
            WHERE c.part_id = p.id AND c.grp_id = p_group.id ORDER BY c.ver DESC LIMIT 1
        ) IS NULL
    );
END $$;
COMMENT ON FUNCTION queen.unmade_cursors IS 'Internal: the number of partitions in which a group has no cursor yet.';
