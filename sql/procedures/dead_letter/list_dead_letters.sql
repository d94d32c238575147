-- The numbers of dead letters that match, newest failure first, and how many of the newest were looked at. Null matches
-- any. A group or an error (its first 1000 characters) is looked for among the newest p_scan that match the rest.
CREATE OR REPLACE FUNCTION queen.find_dead_letters(
    p_queue text, p_group text, p_partition text, p_error text, p_from timestamptz, p_to timestamptz, p_scan int,
    p_limit int, p_offset int
) RETURNS TABLE (id bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint;
    v_from timestamptz := coalesce(p_from, '-infinity');
    v_to timestamptz := coalesce(p_to, 'infinity');
BEGIN
    IF p_queue IS NOT NULL THEN
        SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_partition IS NOT NULL THEN
        RETURN QUERY
        SELECT u.id
        FROM (
            SELECT n.id, n.consumer_group, n.error, n.failed_at
            FROM queen.partitions AS p
            CROSS JOIN LATERAL (
                SELECT d.id, d.consumer_group, d.error, d.failed_at FROM queen.dead_letter_queue AS d
                WHERE d.part_id = p.id AND d.failed_at >= v_from AND d.failed_at <= v_to
                ORDER BY d.failed_at DESC, d.id DESC
                LIMIT CASE WHEN coalesce(p_group, p_error) IS NULL THEN p_limit + p_offset ELSE p_scan END
            ) AS n
            WHERE p.name = p_partition AND (v_queue IS NULL OR p.queue_id = v_queue)
        ) AS u
        WHERE (p_group IS NULL OR u.consumer_group = p_group) AND (p_error IS NULL OR left(u.error, 1000) = p_error)
        ORDER BY u.failed_at DESC, u.id DESC LIMIT p_limit OFFSET p_offset;
    ELSIF v_queue IS NOT NULL THEN
        RETURN QUERY
        SELECT u.id
        FROM (
            SELECT d.id, d.consumer_group, d.error, d.failed_at FROM queen.dead_letter_queue AS d
            WHERE d.queue_id = v_queue AND d.failed_at >= v_from AND d.failed_at <= v_to
            ORDER BY d.failed_at DESC, d.id DESC LIMIT p_scan
        ) AS u
        WHERE (p_group IS NULL OR u.consumer_group = p_group) AND (p_error IS NULL OR left(u.error, 1000) = p_error)
        ORDER BY u.failed_at DESC, u.id DESC LIMIT p_limit OFFSET p_offset;
    ELSE
        RETURN QUERY
        SELECT u.id
        FROM (
            SELECT d.id, d.consumer_group, d.error, d.failed_at FROM queen.dead_letter_queue AS d
            WHERE d.failed_at >= v_from AND d.failed_at <= v_to
            ORDER BY d.failed_at DESC, d.id DESC LIMIT p_scan
        ) AS u
        WHERE (p_group IS NULL OR u.consumer_group = p_group) AND (p_error IS NULL OR left(u.error, 1000) = p_error)
        ORDER BY u.failed_at DESC, u.id DESC LIMIT p_limit OFFSET p_offset;
    END IF;
END $$;
COMMENT ON FUNCTION queen.find_dead_letters IS 'Internal: the numbers of dead letters that match, newest failure first.';

-- Purpose:   a page of dead letters, newest failure first.
-- Arguments: p_queue, p_group, p_partition, p_error (the first 1000 characters): null matches any; p_from, p_to: failed in that time, both included
--            p_scan   as queen.find_dead_letters;  p_bytes  payloads and errors: the page ends before it has more, and has
--                     at least one
CREATE OR REPLACE FUNCTION queen.list_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_error text, p_from timestamptz, p_to timestamptz, p_scan int,
    p_limit int, p_offset int, p_bytes int
) RETURNS TABLE (
    id bigint, part_id bigint, off bigint, queue text, partition text, consumer_group text, transaction_id text,
    trace_id text, producer_sub text, payload text, error text, retry_count int, created_at timestamptz,
    failed_at timestamptz, key_id text, headers text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_id bigint;
    v_bytes bigint := 0;
    v_more int := 0;
BEGIN
    FOR v_id IN
        SELECT f.id FROM queen.find_dead_letters(
            p_queue, p_group, p_partition, p_error, p_from, p_to, p_scan, p_limit, p_offset) AS f
    LOOP
        SELECT d.id, d.part_id, d.off, q.name, p.name, d.consumer_group, d.transaction_id, d.trace_id, d.producer_sub,
            d.payload::text, d.error, d.retry_count, d.created_at, d.failed_at, d.key_id, d.headers::text
        INTO id, part_id, off, queue, partition, consumer_group, transaction_id, trace_id, producer_sub, payload, error,
            retry_count, created_at, failed_at, key_id, headers
        FROM queen.dead_letter_queue AS d
        JOIN queen.queues AS q ON q.id = d.queue_id
        JOIN queen.partitions AS p ON p.id = d.part_id
        WHERE d.id = v_id;
        CONTINUE WHEN NOT FOUND;
        v_more := octet_length(payload) + octet_length(error);
        EXIT WHEN v_bytes > 0 AND v_bytes + v_more > p_bytes;
        v_bytes := v_bytes + v_more;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.list_dead_letters_v1 IS 'A page of dead letters, newest failure first.';

-- Purpose:   how many dead letters match, of the newest p_scan.
CREATE OR REPLACE FUNCTION queen.count_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_error text, p_from timestamptz, p_to timestamptz, p_scan int
) RETURNS bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT count(*)
    FROM queen.find_dead_letters(p_queue, p_group, p_partition, p_error, p_from, p_to, p_scan, p_scan, 0);
END;
COMMENT ON FUNCTION queen.count_dead_letters_v1 IS 'The number of dead letters that match, up to a bound.';
