-- Purpose:   says whether a pop would deliver a message now. It takes no lease and changes no row.
-- Arguments: p_queue; p_partition (null: any of the queue); p_group: a group that does not exist would begin at the oldest message
-- Returns:   true or false; false for an unknown queue or partition. It does not know of pop maintenance.
CREATE OR REPLACE FUNCTION queen.has_pending_messages_v1(
    p_queue text, p_partition text DEFAULT NULL, p_group text DEFAULT '__QUEUE_MODE__'
) RETURNS bool
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_queue bigint := (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue);
    v_grp bigint := (SELECT g.id FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = v_queue AND g.name = p_group);
    v_part bigint := (SELECT p.id FROM queen.partitions AS p WHERE p.queue_id = v_queue AND p.name = p_partition);
BEGIN
    IF p_partition IS NOT NULL AND v_part IS NULL THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT 1 FROM queen.ready_partitions(v_queue, CASE WHEN v_part IS NOT NULL THEN ARRAY[v_part] END, v_grp, 1));
END $$;
COMMENT ON FUNCTION queen.has_pending_messages_v1 IS 'Whether a pop would deliver a message now.';

-- Purpose:   what pops of a group would deliver now, by partition.
-- Arguments: p_queue; p_partitions: their names; p_group (null: the group that is farthest behind, by the statistics)
-- Returns:   one row per partition of which there is something.
CREATE OR REPLACE FUNCTION queen.list_ready_v1(p_queue text, p_partitions text[], p_group text)
RETURNS TABLE (partition text, ready bigint)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint := (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue);
    v_parts bigint[] := ARRAY(
        SELECT p.id FROM queen.partitions AS p WHERE p.queue_id = v_queue AND p.name = ANY(p_partitions));
BEGIN
    RETURN QUERY
    SELECT p.name, r.ready
    FROM queen.ready_partitions(v_queue, v_parts, queen.group_or_slowest(v_queue, p_group), NULL) AS r
    JOIN queen.partitions AS p ON p.id = r.part_id;
END $$;
COMMENT ON FUNCTION queen.list_ready_v1 IS 'What pops of a group would deliver now, by partition.';
