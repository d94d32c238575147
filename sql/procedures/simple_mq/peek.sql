-- Purpose:   shows messages in order of (created_at, message_id), hidden and exhausted ones too, and changes nothing.
-- Arguments: p_after, p_after_id: the place behind which to go on (null: from the beginning; without an id: after that time).
-- Returns:   the messages, at most p_limit; when the queue is unknown one row without any.
CREATE OR REPLACE FUNCTION simple_mq.peek_v1(p_queue uuid, p_after timestamptz, p_after_id uuid, p_limit int)
RETURNS TABLE (
    known bool, message_id uuid, data text, delivery_count int, visible_at timestamptz, created_at timestamptz,
    message_group text
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT 1 FROM simple_mq.queues AS q WHERE q.queue_id = p_queue) THEN
        RETURN QUERY SELECT false, NULL::uuid, NULL::text, NULL::int, NULL::timestamptz, NULL::timestamptz, NULL::text;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT true, m.message_id, m.data, m.delivery_count, m.visible_at, m.created_at, m.message_group
    FROM simple_mq.messages AS m
    WHERE m.queue_id = p_queue
        -- Ids begin with the time, so this is where the index scan starts.
        AND m.message_id >= CASE
            WHEN p_after < '1970-01-01' OR p_after IS NULL THEN '00000000-0000-0000-0000-000000000000'
            ELSE simple_mq.uuid_at(least(p_after, '9999-12-31'), '0000000000000000')
        END
        AND (
            p_after IS NULL
            OR (m.created_at, m.message_id) > (p_after, coalesce(p_after_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        )
    ORDER BY m.message_id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.peek_v1 IS 'A page of messages, without delivering them.';
