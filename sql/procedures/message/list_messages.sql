-- Purpose:   reads a page of messages, newest first, with the state of each.
-- Arguments: p_queue, p_partition, p_namespace, p_task  null matches any
--            p_status   pending, processing, completed or dead_letter; null: any. With a status only the newest p_scan
--                       messages that match the rest are looked at
--            p_from, p_to   created in that time, both included
--            p_bytes    payloads: the page ends before it has more, and has at least one message
-- Returns:   one row per message. done: how many groups have completed it; queue_mode: its state in queue mode.
-- Reads:     what queen.newest_segments reads, and the segments with messages of the page, once each.
CREATE OR REPLACE FUNCTION queen.list_messages_v1(
    p_queue text, p_partition text, p_namespace text, p_task text, p_status text, p_from timestamptz, p_to timestamptz,
    p_limit int, p_offset int, p_scan int, p_bytes int
) RETURNS TABLE (
    part_id bigint, off bigint, queue text, partition text, namespace text, task text, priority int,
    created_at timestamptz, transaction_id text, trace_id text, producer_sub text, payload text, status text,
    queue_mode text, done bigint, groups bigint, lease_ends timestamptz, key_id text, headers text
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_queues bigint[];
    -- A segment holds at least one message, so as many segments as messages are enough.
    v_most CONSTANT int := CASE WHEN p_status IS NULL THEN p_limit + p_offset ELSE p_scan END;
    s_part bigint[];
    s_last bigint[];
    m_part bigint[];         -- the messages, one array a column
    m_last bigint[];
    m_off bigint[];
    m_status text[];
    m_queue_mode text[];
    m_done bigint[];
    m_groups bigint[];
    m_lease_ends timestamptz[];
BEGIN
    IF coalesce(p_queue, p_namespace, p_task) IS NOT NULL THEN
        v_queues := ARRAY(
            SELECT q.id FROM queen.queues AS q
            WHERE (p_queue IS NULL OR q.name = p_queue) AND (p_namespace IS NULL OR q.namespace = p_namespace)
                AND (p_task IS NULL OR q.task = p_task));
    END IF;
    SELECT n.parts, n.lasts INTO s_part, s_last FROM queen.newest_segments(v_queues, p_partition, p_from, p_to, v_most) AS n;

    WITH deleted AS MATERIALIZED (
        SELECT d.part_id, d.offsets + '{}'::int8multirange AS offsets, queen.range_size(d.offsets) AS number
        FROM queen.deleted_messages AS d WHERE d.part_id = ANY(s_part)
    )
    SELECT array_agg(e.part_id), array_agg(e.last_off), array_agg(e.off) INTO m_part, m_last, m_off
    FROM (
        SELECT c.part_id, c.last_off, o.off
        FROM (
            SELECT u.part_id, u.last_off, u.ord, s.n, d.offsets, k.least,
                sum(k.least) OVER (ORDER BY u.ord ROWS UNBOUNDED PRECEDING) - k.least AS before
            FROM unnest(s_part, s_last) WITH ORDINALITY AS u (part_id, last_off, ord)
            JOIN queen.segments AS s ON s.part_id = u.part_id AND s.last_off = u.last_off
            LEFT JOIN deleted AS d ON d.part_id = u.part_id
            -- At least so many of its messages are there.
            CROSS JOIN LATERAL (SELECT greatest(s.n - coalesce(d.number, 0), 0) AS least) AS k
        ) AS c
        CROSS JOIN LATERAL generate_series(c.last_off - c.n + 1, c.last_off) AS o (off)
        WHERE c.before < v_most AND NOT coalesce(c.offsets @> o.off, false)
        ORDER BY c.ord, o.off DESC
        LIMIT CASE WHEN p_status IS NULL THEN p_limit ELSE v_most END
        OFFSET CASE WHEN p_status IS NULL THEN p_offset ELSE 0 END
    ) AS e;

    SELECT array_agg(l.part_id), array_agg(l.last_off), array_agg(l.off), array_agg(l.status), array_agg(l.queue_mode),
        array_agg(l.done), array_agg(l.groups), array_agg(l.lease_ends)
    INTO m_part, m_last, m_off, m_status, m_queue_mode, m_done, m_groups, m_lease_ends
    FROM (
        SELECT u.part_id, u.last_off, u.off, a.status, a.queue_mode, a.done, a.groups, a.lease_ends
        FROM unnest(m_part, m_last, m_off) WITH ORDINALITY AS u (part_id, last_off, off, ord)
        JOIN queen.message_states(m_part, m_off) AS a ON a.part_id = u.part_id AND a.off = u.off
        WHERE p_status IS NULL OR a.status = p_status
        ORDER BY u.ord LIMIT p_limit OFFSET CASE WHEN p_status IS NULL THEN 0 ELSE p_offset END
    ) AS l;

    RETURN QUERY
    SELECT
        p.id, m.off, q.name, p.name, q.namespace, q.task, q.priority, m.created_at, m.transaction_id, m.trace_id,
        m.producer_sub, m.payload, l.status, l.queue_mode, l.done, l.groups, l.lease_ends, m.key_id, m.headers::text
    FROM queen.read_messages(m_part, m_last, m_off, p_bytes) WITH ORDINALITY AS m
        (off, created_at, transaction_id, trace_id, producer_sub, payload, key_id, headers, ord)
    JOIN unnest(m_part, m_status, m_queue_mode, m_done, m_groups, m_lease_ends) WITH ORDINALITY AS l
        (part_id, status, queue_mode, done, groups, lease_ends, ord) ON l.ord = m.ord
    JOIN queen.partitions AS p ON p.id = l.part_id
    JOIN queen.queues AS q ON q.id = p.queue_id
    ORDER BY m.ord;
END $$;
COMMENT ON FUNCTION queen.list_messages_v1 IS 'A page of messages, newest first, with their states.';

-- Messages in the order in which they are named: those of a segment side by side, newest first. They end before their
-- payloads are more than p_bytes, after one at least.
CREATE OR REPLACE FUNCTION queen.read_messages(p_part bigint[], p_segment bigint[], p_off bigint[], p_bytes int)
RETURNS TABLE (
    off bigint, created_at timestamptz, transaction_id text, trace_id text, producer_sub text, payload text,
    key_id text, headers jsonb
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_segment record;
    v_bytes bigint := 0;
BEGIN
    FOR v_segment IN
        SELECT u.part_id, u.last_off, array_agg(u.off ORDER BY u.ord) AS offsets
        FROM unnest(p_part, p_segment, p_off) WITH ORDINALITY AS u (part_id, last_off, off, ord)
        GROUP BY u.part_id, u.last_off ORDER BY min(u.ord)
    LOOP
        FOR off, created_at, transaction_id, trace_id, producer_sub, payload, key_id, headers IN
            SELECT m.* FROM queen.segment_messages(v_segment.part_id, v_segment.last_off, v_segment.offsets) AS m
        LOOP
            v_bytes := v_bytes + octet_length(payload);
            IF v_bytes > p_bytes AND v_bytes > octet_length(payload) THEN
                RETURN;
            END IF;
            RETURN NEXT;
        END LOOP;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.read_messages IS 'Internal: messages of several segments, up to a number of bytes.';

-- The newest p_most segments with messages of some queues (null: of all), newest first. If there are many partitions,
-- it searches by time first, as long as that is little work: then the number of partitions does not matter. Otherwise
-- it reads the newest segments of each partition.
CREATE OR REPLACE FUNCTION queen.newest_segments(
    p_queues bigint[], p_partition text, p_from timestamptz, p_to timestamptz, p_most int,
    OUT parts bigint[], OUT lasts bigint[]
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_few CONSTANT int := 1000;
    v_parts bigint[];
    v_newest bigint[];
    v_complete bool := false;
    v_oldest timestamptz;
BEGIN
    -- Nothing is older, and the search for what is must end.
    p_from := greatest(p_from, '1970-01-01T00:00:00Z');
    v_parts := ARRAY(
        SELECT p.id FROM queen.partitions AS p
        WHERE (p_queues IS NULL OR p.queue_id = ANY(p_queues)) AND (p_partition IS NULL OR p.name = p_partition)
        LIMIT v_few + 1);
    IF cardinality(v_parts) > v_few THEN
        SELECT s.parts, s.lasts, s.complete INTO parts, lasts, v_complete
        FROM queen.segments_by_time(p_queues, p_partition, p_from, p_to, p_most) AS s;
    END IF;
    IF v_complete THEN
        RETURN;
    END IF;
    -- They lie in the partitions whose newest segments are the newest, and are no older than the oldest of these.
    SELECT array_agg(h.id), array_agg(h.last_off), CASE WHEN count(*) = p_most THEN min(h.created_at) ELSE p_from END
    INTO v_parts, v_newest, v_oldest
    FROM (
        SELECT p.id, s.last_off, s.created_at
        FROM queen.partitions AS p
        CROSS JOIN LATERAL (
            SELECT l.last_off, l.created_at FROM queen.segments AS l
            WHERE l.part_id = p.id AND l.n > 0
                AND l.last_off <= CASE WHEN p_to < queen.clock() THEN queen.last_before(p.id, p_to) ELSE 9223372036854775807 END
            ORDER BY l.last_off DESC LIMIT 1
        ) AS s
        WHERE (p_queues IS NULL OR p.queue_id = ANY(p_queues)) AND (p_partition IS NULL OR p.name = p_partition)
            AND s.created_at >= p_from
        ORDER BY s.created_at DESC, p.id DESC LIMIT p_most
    ) AS h;
    SELECT array_agg(n.part_id), array_agg(n.last_off) INTO parts, lasts
    FROM (
        SELECT u.part_id, s.last_off
        FROM unnest(v_parts, v_newest) AS u (part_id, last_off)
        CROSS JOIN LATERAL queen.segments_since(u.part_id, u.last_off, v_oldest, p_most) AS s
        ORDER BY s.created_at DESC, u.part_id DESC, s.last_off DESC LIMIT p_most
    ) AS n;
END $$;
COMMENT ON FUNCTION queen.newest_segments IS 'Internal: the newest segments of some queues.';

-- The newest segments of a partition, from p_upto back to a time, at most p_most of them.
CREATE OR REPLACE FUNCTION queen.segments_since(
    p_part bigint, p_upto bigint, p_oldest timestamptz, p_most int, OUT last_off bigint, OUT created_at timestamptz
) RETURNS SETOF record
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    FOR last_off, created_at IN
        SELECT s.last_off, s.created_at FROM queen.segments AS s
        WHERE s.part_id = p_part AND s.last_off <= p_upto AND s.n > 0 ORDER BY s.last_off DESC LIMIT p_most
    LOOP
        EXIT WHEN created_at < p_oldest;
        RETURN NEXT;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.segments_since IS 'Internal: the newest segments of a partition, back to a time.';

-- The same by the index segments_created_at, in intervals that go back from p_to and become longer. Not complete: it
-- read too many blocks, because other queues have written more since, or because of entries of removed segments.
CREATE OR REPLACE FUNCTION queen.segments_by_time(
    p_queues bigint[], p_partition text, p_from timestamptz, p_to timestamptz, p_most int,
    OUT parts bigint[], OUT lasts bigint[], OUT complete bool
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_blocks CONSTANT bigint := pg_stat_get_xact_blocks_fetched('queen.segments'::regclass) + 10000;
    v_begin timestamptz := least(p_to, queen.clock());
    v_end timestamptz := p_to + interval '1 microsecond';
    v_length interval := '1 second';
    v_parts bigint[];
    v_lasts bigint[];
BEGIN
    LOOP
        v_begin := greatest(v_begin - v_length, p_from);
        SELECT array_agg(n.part_id), array_agg(n.last_off) INTO v_parts, v_lasts
        FROM (
            SELECT s.part_id, s.last_off
            FROM (
                SELECT l.part_id, l.last_off, l.created_at FROM queen.segments AS l
                WHERE l.created_at >= v_begin AND l.created_at < v_end AND l.n > 0
                ORDER BY l.created_at DESC, l.part_id DESC, l.last_off DESC
            ) AS s
            CROSS JOIN LATERAL (
                SELECT 1 FROM queen.partitions AS p
                WHERE p.id = s.part_id AND (p_queues IS NULL OR p.queue_id = ANY(p_queues))
                    AND (p_partition IS NULL OR p.name = p_partition)
                OFFSET 0
            ) AS p
            ORDER BY s.created_at DESC, s.part_id DESC, s.last_off DESC LIMIT p_most - coalesce(cardinality(parts), 0)
        ) AS n;
        parts := parts || v_parts;
        lasts := lasts || v_lasts;
        complete := v_begin = p_from OR coalesce(cardinality(parts), 0) >= p_most;
        EXIT WHEN complete OR pg_stat_get_xact_blocks_fetched('queen.segments'::regclass) > v_blocks;
        v_end := v_begin;
        v_length := v_length * 2;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.segments_by_time IS 'Internal: the newest segments of some queues, found by time.';
