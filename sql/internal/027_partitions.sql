-- Removes everything of partitions. The caller holds the queue row against groups and partitions that are being made.
-- A table with a column part_id has its line here.
CREATE OR REPLACE FUNCTION queen.remove_partitions(p_part bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = ANY(p_part) ORDER BY h.part_id FOR UPDATE;
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.part_id = ANY(p_part) ORDER BY c.part_id, c.grp_id FOR UPDATE;
    DELETE FROM queen.partition_consumers AS c WHERE c.part_id = ANY(p_part);
    DELETE FROM queen.transaction_ids AS t WHERE t.part_id = ANY(p_part);
    DELETE FROM queen.segments AS s WHERE s.part_id = ANY(p_part);
    DELETE FROM queen.deleted_messages AS d WHERE d.part_id = ANY(p_part);
    DELETE FROM queen.traces AS t WHERE t.part_id = ANY(p_part);
    DELETE FROM queen.stream_state AS s WHERE s.part_id = ANY(p_part);
    DELETE FROM queen.stream_cycles AS y WHERE y.part_id = ANY(p_part);
    DELETE FROM queen.partition_locks AS h WHERE h.part_id = ANY(p_part);
    DELETE FROM queen.partitions AS p WHERE p.id = ANY(p_part);
END $$;
COMMENT ON FUNCTION queen.remove_partitions IS 'Internal: removes everything of partitions.';
