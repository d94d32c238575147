-- The room of a queue that has a maximum size, as it was until commit f517f0b.
--
-- Each push counts what is in all partitions of the queue.
--
-- A mutant of G-COST-1: tests/integration/test_growth.py puts it in place of the product's and must notice. The first
-- function is the old one under a name of its own, on the tables of today. The second one attaches it: it has the name
-- and the arguments by which the product calls that step. A change of tables or names has to adapt what does not fit
-- any more, and leaves the fault in (docs/adr/0043-growth-tests.md).
CREATE OR REPLACE FUNCTION queen.old_backlog(p_queue_id bigint) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_upto CONSTANT bigint := (
        SELECT min(g.subscribed_upto) FROM queen.consumer_groups_metadata AS g
        WHERE g.queue_id = p_queue_id AND g.subscribed_upto >= 0);
BEGIN
    RETURN (
        SELECT coalesce(sum(
            h.next_off - 1 - coalesce(
                least(queen.lowest_cursor(p.id), CASE WHEN p.id > v_upto THEN queen.lowest_start(p_queue_id, p.id) END),
                queen.last_before(p.id, '-infinity'))), 0)
        FROM queen.partitions AS p JOIN queen.log_ends AS h ON h.part_id = p.id
        WHERE p.queue_id = p_queue_id AND h.next_off > 0
    );
END $$;

CREATE OR REPLACE FUNCTION queen.take_room(p_limited bigint[], p_part bigint[], p_n int[])
RETURNS TABLE (part_id bigint, room bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH pushed AS (
        SELECT p.id, p.queue_id, sum(u.n) OVER (PARTITION BY p.queue_id) AS n
        FROM unnest(p_part, p_n) AS u (part_id, n)
        JOIN queen.partitions AS p ON p.id = ANY(ARRAY[u.part_id]) AND p.queue_id = ANY(p_limited)
    ), limited AS (
        SELECT q.id, greatest(q.max_size - queen.old_backlog(q.id), 0) AS room
        FROM queen.queues AS q WHERE q.id = ANY(p_limited) AND q.max_size > 0
    )
    SELECT pushed.id, limited.room FROM pushed JOIN limited ON limited.id = pushed.queue_id
    WHERE pushed.n > limited.room;
END $$;
