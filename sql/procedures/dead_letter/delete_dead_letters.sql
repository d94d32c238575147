-- Purpose:   deletes dead letters: one by its number, or those of a queue, of one group if it is named.
-- Returns:   how many.
CREATE OR REPLACE FUNCTION queen.delete_dead_letters_v1(p_id bigint, p_queue text, p_group text) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    v_deleted bigint;
BEGIN
    DELETE FROM queen.dead_letter_queue AS d
    WHERE d.id = p_id OR (
        p_id IS NULL AND d.queue_id = (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue)
        AND (p_group IS NULL OR d.consumer_group = p_group));
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN v_deleted;
END $$;
COMMENT ON FUNCTION queen.delete_dead_letters_v1 IS 'Deletes one dead letter, or those of a queue or group.';
