-- Purpose:   moves a message to the dead letters: it is done, for one group or for all groups that had not done it.
-- Arguments: p_part; p_off and p_hash: its offset by the form of its message id, and its hash (queen.transaction_hash)
--            p_group: null for all groups of the queue;  p_error: text of the dead letters
-- Returns:   known: whether there is such a message; groups: those for which it was given up.
-- Locks:     the partition, then the cursors of the partition in grp_id order.
-- Writes:    dead_letter_queue, partition_consumers.
CREATE OR REPLACE FUNCTION queen.move_to_dead_letters_v1(
    p_part bigint, p_off bigint, p_hash uuid, p_group text, p_error text, OUT known bool, OUT groups text[]
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_off bigint;
    v_at timestamptz;
    v_ids bigint[];
BEGIN
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = p_part FOR UPDATE;
    known := FOUND;
    IF NOT known THEN
        RETURN;
    END IF;
    v_off := queen.find_message(p_part, p_off, p_hash);
    known := v_off IS NOT NULL;
    SELECT s.created_at INTO v_at FROM queen.segments AS s
    WHERE s.part_id = p_part AND s.last_off >= v_off ORDER BY s.last_off LIMIT 1;
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.part_id = p_part ORDER BY c.grp_id FOR UPDATE;
    SELECT array_agg(g.name ORDER BY g.id), array_agg(g.id ORDER BY g.id) INTO groups, v_ids
    FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
    WHERE c.part_id = p_part AND (p_group IS NULL OR g.name = p_group)
        AND c.acked < v_off AND NOT coalesce(c.ahead @> v_off, false)
        -- A group that waits for its start will skip what is not younger.
        AND (g.starts_at IS NULL OR g.starts_at < v_at);
    PERFORM queen.bury(
        g.queue_id, p_part, g.id, g.name, ARRAY[v_off], ARRAY[p_error],
        ARRAY[coalesce((c.retries ->> v_off::text)::int, 0)], queen.clock())
    FROM queen.partition_consumers AS c JOIN queen.consumer_groups_metadata AS g ON g.id = c.grp_id
    WHERE c.part_id = p_part AND g.id = ANY(v_ids);
    PERFORM queen.finish(p_part, v_ids, v_off, queen.write_clock());
END $$;
COMMENT ON FUNCTION queen.move_to_dead_letters_v1 IS
    'Moves a message to the dead letters of one group, or of all groups that have not acknowledged it.';
