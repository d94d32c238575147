-- Purpose:   one dead letter: by its number, or the newest of a message.
-- Arguments: p_id, or p_part with p_off and p_hash as in get_message_v1 (the message itself may be gone)
CREATE OR REPLACE FUNCTION queen.find_dead_letter_v1(p_id bigint, p_part bigint, p_off bigint, p_transaction_id text)
RETURNS TABLE (
    id bigint, part_id bigint, queue text, partition text, consumer_group text, transaction_id text, trace_id text,
    producer_sub text, payload text, key_id text
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT d.id, d.part_id, q.name, p.name, d.consumer_group, d.transaction_id, d.trace_id, d.producer_sub,
        d.payload::text, d.key_id
    FROM queen.dead_letter_queue AS d
    JOIN queen.queues AS q ON q.id = d.queue_id
    JOIN queen.partitions AS p ON p.id = d.part_id
    WHERE d.id = p_id
        OR (p_id IS NULL AND d.part_id = p_part AND (d.off = p_off OR d.transaction_id = p_transaction_id))
    ORDER BY d.failed_at DESC, d.id DESC LIMIT 1;
END;
COMMENT ON FUNCTION queen.find_dead_letter_v1 IS 'One dead letter, by its number or by its message.';
