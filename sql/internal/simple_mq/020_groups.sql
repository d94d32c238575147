-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- A group of messages has at most one message that is waiting or taken, the oldest; the others are behind it. A call
-- that changes this holds the lock of the group. All groups share 1024 advisory locks, so that a call never holds more
-- than those.
CREATE OR REPLACE FUNCTION simple_mq.group_slot(p_queue uuid, p_group text) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN hashtextextended(p_queue::text || p_group, 0)::bit(10)::int;
COMMENT ON FUNCTION simple_mq.group_slot IS 'Internal: which of the 1024 locks is that of a group.';

CREATE OR REPLACE FUNCTION simple_mq.lock_groups(p_queue uuid[], p_group text[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF array_position(p_group, NULL) IS NULL AND cardinality(p_group) > 0
        OR EXISTS (SELECT 1 FROM unnest(p_group) AS u (name) WHERE u.name IS NOT NULL) THEN
        PERFORM pg_advisory_xact_lock(7564657, slots.slot) FROM (
            SELECT DISTINCT simple_mq.group_slot(u.queue_id, u.name) AS slot
            FROM unnest(p_queue, p_group) AS u (queue_id, name)
            WHERE u.name IS NOT NULL ORDER BY slot
        ) AS slots;
    END IF;
END $$;
COMMENT ON FUNCTION simple_mq.lock_groups IS
    'Internal: takes the locks of groups, in order. They are the first locks of a call.';

CREATE OR REPLACE FUNCTION simple_mq.promote(p_queue uuid[], p_group text[]) RETURNS uuid[]
LANGUAGE sql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    WITH promoted AS (
        UPDATE simple_mq.messages AS m SET state = 'r'
        FROM (
            SELECT u.queue_id, h.message_id
            FROM (SELECT DISTINCT g.queue_id, g.name FROM unnest(p_queue, p_group) AS g (queue_id, name)) AS u
            CROSS JOIN LATERAL (
                SELECT b.message_id FROM simple_mq.messages AS b
                WHERE b.queue_id = u.queue_id AND b.message_group = u.name AND b.state = 'b'
                ORDER BY b.message_id LIMIT 1
            ) AS h
            WHERE NOT EXISTS (
                SELECT 1 FROM simple_mq.messages AS l
                WHERE l.queue_id = u.queue_id AND l.message_group = u.name AND l.state IN ('w', 'r', 't')
            )
        ) AS next
        WHERE m.queue_id = ANY(ARRAY[next.queue_id]) AND m.message_id = ANY(ARRAY[next.message_id])
        RETURNING m.queue_id
    )
    SELECT coalesce(array_agg(p.queue_id), '{}') FROM promoted AS p;
$$;
COMMENT ON FUNCTION simple_mq.promote IS
    'Internal: makes the oldest message of each group ready, if the group has no message ready or in flight; '
    'returns the queue of each. The caller holds the locks of the groups.';
