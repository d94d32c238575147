-- Purpose:   finds names by number, for the answer of an ack, which has only the id of its partition.
-- Returns:   one row per partition that exists.
CREATE OR REPLACE FUNCTION queen.describe_partitions_v1(p_part bigint[])
RETURNS TABLE (part_id bigint, queue_id bigint, queue text, partition text)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT p.id, p.queue_id, q.name, p.name
    FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
    WHERE p.id = ANY(p_part);
END;
COMMENT ON FUNCTION queen.describe_partitions_v1 IS 'Names of partitions and their queues by number.';
