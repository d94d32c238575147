-- simple_mq.heads says where the waiting messages of a queue begin; polls start there.

-- For this snapshot, messages that others are just taking still wait, so the head stays before them. Enqueues that are
-- not committed yet are younger. A transaction that finds the row locked skips it, because the row is only a hint.
CREATE OR REPLACE FUNCTION simple_mq.move_head(p_queue uuid, p_head uuid, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM 1 FROM simple_mq.heads AS h WHERE h.queue_id = p_queue FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE simple_mq.heads AS h SET waiting_from = coalesce(first.created_at, h.waiting_from), checked_at = p_now
        FROM (SELECT 1) AS one
        LEFT JOIN (
            SELECT m.created_at FROM simple_mq.messages AS m
            WHERE m.queue_id = p_queue AND m.state = 'w' AND m.message_id >= p_head
            ORDER BY m.message_id LIMIT 1
        ) AS first ON true
        WHERE h.queue_id = p_queue;
    END IF;
END $$;
COMMENT ON FUNCTION simple_mq.move_head IS
    'Internal: stores the oldest waiting message of a queue, so that polls start there.';

-- The seconds until a message of a queue becomes visible by itself; null: not before an enqueue; 0 or less: one is
-- visible. simple_mq.dequeue_v1, which calls it, sets how its statements are planned.
CREATE OR REPLACE FUNCTION simple_mq.next_visible_in(p_queue uuid, p_head uuid, p_now timestamptz) RETURNS float8
LANGUAGE plpgsql
AS $$
BEGIN
    RETURN CASE
        WHEN EXISTS (
            SELECT 1 FROM simple_mq.messages AS m
            WHERE m.queue_id = p_queue AND m.state = 'w' AND m.message_id >= p_head
        ) OR EXISTS (
            SELECT 1 FROM simple_mq.messages AS m WHERE m.queue_id = p_queue AND m.state = 'r'
        ) THEN 0
        ELSE extract(epoch FROM (
            SELECT min(m.visible_at) FROM simple_mq.messages AS m
            WHERE m.queue_id = p_queue AND m.state = 't'
        ) - p_now)::float8
    END;
END $$;
COMMENT ON FUNCTION simple_mq.next_visible_in IS 'Internal: the seconds until a message of a queue becomes visible.';
