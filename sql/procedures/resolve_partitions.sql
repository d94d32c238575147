-- Purpose:   the numbers of queues and partitions by name, made if p_create and missing.
-- Arguments: one element per partition: p_queue, p_partition
-- Returns:   one row per element: ord from 1, queue_id and part_id (null: unknown, and p_create is false).
-- Locks:     queue rows FOR SHARE while partitions are made, so that a group that is subscribing (FOR UPDATE) either
--            sees the partition or is seen by it.
-- Errors:    QN006: a partition that is to be made belongs to another shard (ADR 68).
-- Writes:    queues, partitions, partition_locks, partition_consumers.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION queen.resolve_partitions_v1(p_queue text[], p_partition text[], p_create bool)
RETURNS TABLE (ord int, queue_id bigint, part_id bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF p_create THEN
        PERFORM queen.make_queues(p_queue);
        PERFORM queen.make_partitions(p_queue, p_partition);
    END IF;
    RETURN QUERY
    SELECT u.ord::int, q.id, p.id
    FROM unnest(p_queue, p_partition) WITH ORDINALITY AS u (queue, partition, ord)
    LEFT JOIN queen.queues AS q ON q.name = ANY(ARRAY[u.queue])
    LEFT JOIN LATERAL (
        SELECT l.id FROM queen.partitions AS l WHERE l.queue_id = q.id AND l.name = u.partition OFFSET 0
    ) AS p ON true
    ORDER BY u.ord;
END $$;
COMMENT ON FUNCTION queen.resolve_partitions_v1 IS
    'The numbers of queues and partitions by name; creates missing ones on request.';

CREATE OR REPLACE FUNCTION queen.make_queues(p_queue text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    INSERT INTO queen.queues (name, namespace, task)
    SELECT u.name, split_part(u.name, '.', 1), split_part(u.name, '.', 2)
    FROM (SELECT DISTINCT n.name FROM unnest(p_queue) AS n (name)) AS u
    WHERE NOT EXISTS (SELECT 1 FROM queen.queues AS q WHERE q.name = u.name)
    ORDER BY u.name
    ON CONFLICT DO NOTHING;
END $$;
COMMENT ON FUNCTION queen.make_queues IS 'Internal: creates missing queues.';

CREATE OR REPLACE FUNCTION queen.make_partitions(p_queue text[], p_partition text[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_foreign record;
BEGIN
    PERFORM 1 FROM queen.queues AS q WHERE q.name = ANY(p_queue) ORDER BY q.id FOR SHARE;
    SELECT u.queue, u.partition INTO v_foreign FROM unnest(p_queue, p_partition) AS u (queue, partition)
    WHERE NOT EXISTS (
        SELECT 1 FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
        WHERE q.name = ANY(ARRAY[u.queue]) AND p.name = u.partition OFFSET 0
    ) AND NOT queen.is_home(u.queue, u.partition) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'partition % of queue % belongs to another shard', v_foreign.partition, v_foreign.queue
            USING ERRCODE = 'QN006', HINT = 'Servers of an installation with several databases need DATABASE_URLS.';
    END IF;
    WITH made AS (
        INSERT INTO queen.partitions (queue_id, name, created_at)
        SELECT q.id, u.name, queen.clock()
        FROM (SELECT DISTINCT n.queue, n.name FROM unnest(p_queue, p_partition) AS n (queue, name)) AS u
        JOIN queen.queues AS q ON q.name = ANY(ARRAY[u.queue])
        WHERE NOT EXISTS (SELECT 1 FROM queen.partitions AS p WHERE p.queue_id = q.id AND p.name = u.name OFFSET 0)
        ORDER BY q.id, u.name
        ON CONFLICT DO NOTHING
        RETURNING id, queue_id
    ), lockable AS (
        INSERT INTO queen.partition_locks (part_id) SELECT made.id FROM made
    )
    INSERT INTO queen.partition_consumers (part_id, grp_id, acked, upto, seen, ready_at)
    SELECT made.id, g.id, -1, -1, -1, 'infinity'
    FROM made JOIN queen.consumer_groups_metadata AS g ON g.queue_id = made.queue_id;
END $$;
COMMENT ON FUNCTION queen.make_partitions IS
    'Internal: creates missing partitions of existing queues, with their parked cursors.';
