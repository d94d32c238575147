-- Purpose:   for a key rotation: the next timers, by queue and key, or all schedules, of queues that are or were encrypted.
-- Returns:   one row per timer or schedule; plain_too: the queue is encrypted now, so nothing may stand there in clear.
CREATE OR REPLACE FUNCTION queen.find_encrypted_timers_v1(p_queue_id bigint, p_key text, p_limit int)
RETURNS TABLE (queue_id bigint, key text, queue text, partition text, message text, plain_too bool)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT q.id, t.key, q.name, t.partition, t.message, q.encryption_enabled
    FROM queen.timers AS t JOIN queen.queues AS q ON q.id = t.queue_id AND q.ever_encrypted
    WHERE (t.queue_id, t.key) > (p_queue_id, p_key) ORDER BY t.queue_id, t.key LIMIT p_limit;
END $$;
COMMENT ON FUNCTION queen.find_encrypted_timers_v1 IS 'The next timers of queues that are or were encrypted.';

CREATE OR REPLACE FUNCTION queen.find_encrypted_schedules_v1()
RETURNS TABLE (queue_id bigint, key text, queue text, partition text, message text, plain_too bool)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.id, s.name, q.name, s.partition, s.message, q.encryption_enabled
    FROM queen.schedules AS s JOIN queen.queues AS q ON q.id = s.queue_id AND q.ever_encrypted
    ORDER BY q.id, s.name;
END;
COMMENT ON FUNCTION queen.find_encrypted_schedules_v1 IS 'The schedules of queues that are or were encrypted.';

-- Purpose:   replaces the message of a timer, or of a schedule, by the same under another key, if it is still what was read.
--            The timer gets another seq: a move that has read the old message does nothing.
CREATE OR REPLACE FUNCTION queen.replace_timer_v1(
    p_schedule bool, p_queue_id bigint, p_key text, p_old text, p_message text
) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF p_schedule THEN
        UPDATE queen.schedules AS s SET message = p_message
        WHERE s.queue_id = p_queue_id AND s.name = p_key AND s.message = p_old;
    ELSE
        UPDATE queen.timers AS t SET message = p_message, seq = DEFAULT
        WHERE t.queue_id = p_queue_id AND t.key = p_key AND t.message = p_old;
    END IF;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.replace_timer_v1 IS 'Replaces the message of a timer by the same, encrypted with another key.';
