-- Purpose:   shows queues of SQS whose names contain p_search, by name, behind p_after, at most p_limit.
-- Returns:   one row per queue: its messages as simple_mq.sqs_figures_v1 has them, and the age in seconds of the oldest
--            one in any state (0: none).
CREATE OR REPLACE FUNCTION simple_mq.sqs_overview_v1(p_search text, p_after text, p_limit int)
RETURNS TABLE (
    queue_id uuid, queue_name text, visible bigint, in_flight bigint, delayed bigint, oldest_age float8, dlq_name text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN QUERY
    SELECT
        q.queue_id, q.queue_name, f.visible, f.in_flight, f.delayed,
        coalesce(greatest(extract(epoch FROM v_now - (
            SELECT m.created_at FROM simple_mq.messages AS m
            WHERE m.queue_id = q.store_id ORDER BY m.message_id LIMIT 1
        )), 0), 0)::float8, q.dlq_name
    FROM (
        SELECT n.queue_id, n.store_id, n.queue_name, n.dlq_name FROM simple_mq.sqs_queues AS n
        WHERE n.queue_name > p_after AND strpos(n.queue_name, p_search) > 0 ORDER BY n.queue_name LIMIT p_limit
    ) AS q CROSS JOIN LATERAL simple_mq.sqs_figures_v1(q.queue_id) AS f
    ORDER BY q.queue_name;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_overview_v1 IS 'A page of queues of SQS with their messages.';

-- Purpose:   shows messages in the order in which they were sent, in any state, and changes nothing.
-- Arguments: p_after: the message behind which to go on (null: from the beginning).
-- Returns:   at most p_limit messages, and no more after p_bytes of bodies; each with its place: visible, in_flight,
--            delayed or behind (another message of its group).
CREATE OR REPLACE FUNCTION simple_mq.sqs_peek_v1(p_queue uuid, p_after uuid, p_limit int, p_bytes bigint)
RETURNS TABLE (
    place text, visible_at timestamptz, message_id uuid, data text, attributes bytea, key_id text, delivery_count int,
    created_at timestamptz, first_received_at timestamptz, message_group text, deduplication_id text, source_id uuid,
    fifo bool, sent_id uuid
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_queue simple_mq.sqs_queues;
    v_due timestamptz;
    v_bytes bigint := 0;
    v_found simple_mq.messages;
BEGIN
    SELECT q.* INTO v_queue FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_queue;
    v_due := simple_mq.sqs_due_from(v_queue, v_now);
    FOR v_found IN
        SELECT m.* FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue.store_id AND m.message_id > coalesce(p_after, '00000000-0000-0000-0000-000000000000')
            AND m.message_id >= simple_mq.uuid_at(v_now - make_interval(secs => v_queue.retention), '0000000000000000')
        ORDER BY m.message_id LIMIT p_limit
    LOOP
        EXIT WHEN v_bytes >= p_bytes;
        v_bytes := v_bytes + octet_length(v_found.data);
        RETURN QUERY SELECT
            CASE
                WHEN v_found.state = 't' AND v_found.visible_at > v_now THEN 'in_flight'
                WHEN v_found.state = 'd' AND v_found.visible_at > v_due THEN 'delayed'
                WHEN v_found.state = 'b' THEN 'behind'
                ELSE 'visible'
            END,
            v_found.visible_at + CASE WHEN v_found.state = 'd' THEN v_now - v_due ELSE interval '0' END,
            v_found.message_id, v_found.data, v_found.attributes, v_found.key_id, v_found.delivery_count,
            v_found.created_at, v_found.first_received_at, v_found.message_group,
            v_found.deduplication_id, v_found.source_id, v_queue.fifo, v_found.sent_id;
    END LOOP;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_peek_v1 IS 'A page of messages of a queue of SQS, without receiving them.';
