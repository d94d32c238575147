-- Purpose:   finds one dead letter: by its number, or the newest of a message.
-- Arguments: p_id, or p_part with p_off and p_transaction_id (the message itself may be gone)
CREATE OR REPLACE FUNCTION queen.find_dead_letter_v1(p_id bigint, p_part bigint, p_off bigint, p_transaction_id text)
RETURNS TABLE (
    id bigint, part_id bigint, queue text, partition text, consumer_group text, transaction_id text, trace_id text,
    producer_sub text, payload text, key_id text, headers text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_id bigint := p_id;
BEGIN
    IF v_id IS NULL THEN
        -- Each by an index of its own: a partition may have any number of dead letters.
        SELECT u.id INTO v_id
        FROM (
            (SELECT d.id, d.failed_at FROM queen.dead_letter_queue AS d WHERE d.part_id = p_part AND d.off = p_off)
            UNION ALL
            (
                SELECT d.id, d.failed_at FROM queen.dead_letter_queue AS d
                WHERE d.part_id = p_part AND d.transaction_id = p_transaction_id
            )
        ) AS u
        ORDER BY u.failed_at DESC, u.id DESC LIMIT 1;
    END IF;
    RETURN QUERY
    SELECT d.id, d.part_id, q.name, p.name, d.consumer_group, d.transaction_id, d.trace_id, d.producer_sub,
        d.payload::text, d.key_id, d.headers::text
    FROM queen.dead_letter_queue AS d
    JOIN queen.queues AS q ON q.id = d.queue_id
    JOIN queen.partitions AS p ON p.id = d.part_id
    WHERE d.id = v_id;
END $$;
COMMENT ON FUNCTION queen.find_dead_letter_v1 IS 'One dead letter, by its number or by its message.';
