-- Purpose:   a page of dead letters, newest failure first.
-- Arguments: p_queue, p_group, p_partition: null matches any; p_from, p_to: failed in that time, both included
CREATE OR REPLACE FUNCTION queen.list_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz, p_limit int, p_offset int
) RETURNS TABLE (
    id bigint, part_id bigint, off bigint, queue text, partition text, consumer_group text, transaction_id text,
    trace_id text, producer_sub text, payload text, error text, retry_count int, created_at timestamptz,
    failed_at timestamptz, key_id text
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT d.id, d.part_id, d.off, q.name, p.name, d.consumer_group, d.transaction_id, d.trace_id, d.producer_sub,
        d.payload::text, d.error, d.retry_count, d.created_at, d.failed_at, d.key_id
    FROM queen.dead_letter_queue AS d
    JOIN queen.queues AS q ON q.id = d.queue_id
    JOIN queen.partitions AS p ON p.id = d.part_id
    WHERE (p_queue IS NULL OR d.queue_id = (SELECT u.id FROM queen.queues AS u WHERE u.name = p_queue))
        AND (p_group IS NULL OR d.consumer_group = p_group) AND (p_partition IS NULL OR p.name = p_partition)
        AND (p_from IS NULL OR d.failed_at >= p_from) AND (p_to IS NULL OR d.failed_at <= p_to)
    ORDER BY d.failed_at DESC, d.id DESC LIMIT p_limit OFFSET p_offset;
END;
COMMENT ON FUNCTION queen.list_dead_letters_v1 IS 'A page of dead letters, newest failure first.';

-- Purpose:   how many dead letters match; counts no further than p_most.
CREATE OR REPLACE FUNCTION queen.count_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_from timestamptz, p_to timestamptz, p_most int
) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT count(*)
    FROM (
        SELECT 1 FROM queen.dead_letter_queue AS d
        WHERE (p_queue IS NULL OR d.queue_id = (SELECT u.id FROM queen.queues AS u WHERE u.name = p_queue))
            AND (p_group IS NULL OR d.consumer_group = p_group)
            AND (p_partition IS NULL OR EXISTS (
                SELECT 1 FROM queen.partitions AS p WHERE p.id = d.part_id AND p.name = p_partition))
            AND (p_from IS NULL OR d.failed_at >= p_from) AND (p_to IS NULL OR d.failed_at <= p_to)
        LIMIT p_most
    ) AS u;
END;
COMMENT ON FUNCTION queen.count_dead_letters_v1 IS 'How many dead letters match, up to a bound.';
