-- Purpose:   deletes a queue and, by the trigger on queen.queues, everything of it. The trigger makes the same of a DELETE in psql.
-- Returns:   whether the queue existed.
-- Locks:     the queue row; then heads and cursors of the queue in the order of all other procedures.
CREATE OR REPLACE FUNCTION queen.delete_queue_v1(p_queue text) RETURNS bool
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.queues AS q WHERE q.name = p_queue;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.delete_queue_v1 IS 'Deletes a queue with everything in it.';

CREATE OR REPLACE FUNCTION queen.empty_queue() RETURNS trigger
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_parts bigint[];
BEGIN
    SELECT array_agg(p.id ORDER BY p.id) INTO v_parts FROM queen.partitions AS p WHERE p.queue_id = old.id;
    PERFORM 1 FROM queen.partition_lookup AS h WHERE h.part_id = ANY(v_parts) ORDER BY h.part_id FOR UPDATE;
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.part_id = ANY(v_parts) ORDER BY c.part_id, c.grp_id FOR UPDATE;
    DELETE FROM queen.partition_consumers AS c WHERE c.part_id = ANY(v_parts);
    DELETE FROM queen.transaction_ids AS t WHERE t.part_id = ANY(v_parts);
    DELETE FROM queen.segments AS s WHERE s.part_id = ANY(v_parts);
    DELETE FROM queen.partition_lookup AS h WHERE h.part_id = ANY(v_parts);
    DELETE FROM queen.dead_letter_queue AS d WHERE d.queue_id = old.id;
    DELETE FROM queen.deleted_messages AS d WHERE d.part_id = ANY(v_parts);
    DELETE FROM queen.traces AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = old.id;
    DELETE FROM queen.retired_groups AS g WHERE g.queue_id = old.id;
    DELETE FROM queen.group_stats AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.queue_stats AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.partitions AS p WHERE p.queue_id = old.id;
    DELETE FROM queen.stream_state AS s WHERE s.part_id = ANY(v_parts);
    DELETE FROM queen.stream_cycles AS y WHERE y.part_id = ANY(v_parts);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.empty_queue IS 'Trigger: removes everything of a deleted queue.';
CREATE OR REPLACE TRIGGER empty_queue AFTER DELETE ON queen.queues FOR EACH ROW EXECUTE FUNCTION queen.empty_queue();
