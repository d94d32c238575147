CREATE OR REPLACE FUNCTION simple_mq.message_count(p_queue uuid) RETURNS bigint
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (SELECT coalesce(sum(c.messages), 0)::bigint FROM simple_mq.counts AS c WHERE c.queue_id = p_queue);
END $$;
COMMENT ON FUNCTION simple_mq.message_count IS 'The messages in a queue: waiting, taken, exhausted and behind.';

CREATE OR REPLACE FUNCTION simple_mq.open_counts(p_queue uuid) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO simple_mq.counts (queue_id, shard) SELECT p_queue, s FROM generate_series(0, 8) AS s ON CONFLICT DO NOTHING;
    INSERT INTO simple_mq.heads (queue_id) VALUES (p_queue) ON CONFLICT DO NOTHING;
$$;
COMMENT ON FUNCTION simple_mq.open_counts IS 'Internal: creates the counter shards and the head of a new queue.';

CREATE OR REPLACE FUNCTION simple_mq.removed(p_queue uuid[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF cardinality(p_queue) = 0 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM simple_mq.counts AS c
    WHERE c.queue_id = ANY(p_queue) AND c.shard = 1 + pg_backend_pid() % 8 ORDER BY c.queue_id FOR UPDATE;
    UPDATE simple_mq.counts AS c SET messages = c.messages - u.number
    FROM (SELECT q, count(*) AS number FROM unnest(p_queue) AS q GROUP BY q) AS u
    WHERE c.queue_id = u.q AND c.shard = 1 + pg_backend_pid() % 8;
END $$;
COMMENT ON FUNCTION simple_mq.removed IS
    'Internal: lowers the counts of queues, by one per occurrence of a queue. Its locks are the last of a call.';
