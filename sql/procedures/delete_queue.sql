-- Purpose:   deletes a queue and, by the trigger on queen.queues, everything of it. The trigger makes the same of a DELETE in psql.
-- Returns:   whether the queue existed.
-- Locks:     the queue row; then partitions and cursors of the queue in the order of all other procedures.
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
    PERFORM queen.remove_partitions(v_parts);
    DELETE FROM queen.dead_letter_queue AS d WHERE d.queue_id = old.id;
    DELETE FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = old.id;
    DELETE FROM queen.retired_groups AS g WHERE g.queue_id = old.id;
    DELETE FROM queen.group_stats AS t WHERE t.queue_id = old.id;
    DELETE FROM queen.queue_stats AS t WHERE t.queue_id = old.id;
    IF old.encryption_enabled OR old.max_size > 0 THEN
        UPDATE queen.push_options SET version = version + 1 WHERE id;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION queen.empty_queue IS 'Trigger: removes everything of a deleted queue.';
CREATE OR REPLACE TRIGGER empty_queue AFTER DELETE ON queen.queues FOR EACH ROW EXECUTE FUNCTION queen.empty_queue();
