CREATE OR REPLACE FUNCTION simple_mq.sqs_count(
    p_store uuid[], p_messages bigint[], p_in_flight bigint[], p_delayed bigint[]
) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
BEGIN
    IF coalesce(cardinality(p_store), 0) = 0 THEN
        RETURN;
    END IF;
    PERFORM 1 FROM simple_mq.counts AS c
    WHERE c.queue_id = ANY(p_store) AND c.shard = 1 + pg_backend_pid() % 8 ORDER BY c.queue_id FOR UPDATE;
    UPDATE simple_mq.counts AS c
    SET messages = c.messages + u.messages, in_flight = c.in_flight + u.in_flight, delayed = c.delayed + u.delayed
    FROM (
        SELECT s.store_id, sum(s.messages) AS messages, sum(s.in_flight) AS in_flight, sum(s.delayed) AS delayed
        FROM unnest(p_store, p_messages, p_in_flight, p_delayed) AS s (store_id, messages, in_flight, delayed)
        GROUP BY s.store_id
    ) AS u
    WHERE c.queue_id = u.store_id AND c.shard = 1 + pg_backend_pid() % 8;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_count IS
    'Internal: adds to the counts of queues of SQS, in own shards. Its locks are the last of a call.';

CREATE OR REPLACE FUNCTION simple_mq.sqs_in_flight(p_store uuid) RETURNS bigint
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (SELECT coalesce(sum(c.in_flight), 0)::bigint FROM simple_mq.counts AS c WHERE c.queue_id = p_store);
END $$;
COMMENT ON FUNCTION simple_mq.sqs_in_flight IS 'Internal: the messages in flight of a queue.';

-- The locks of groups, without waiting: true for a group whose lock this transaction has now.
CREATE OR REPLACE FUNCTION simple_mq.sqs_try_group(p_store uuid, p_group text) RETURNS bool
LANGUAGE sql
RETURN pg_try_advisory_xact_lock(7564657, simple_mq.group_slot(p_store, p_group));
COMMENT ON FUNCTION simple_mq.sqs_try_group IS 'Internal: takes the lock of a group of messages, if nobody has it.';

-- In a group of a FIFO queue either some messages are in flight and all others behind them, or the oldest is ready. A
-- message may have come that is older than the ready one, or the ready one may be gone.
CREATE OR REPLACE FUNCTION simple_mq.sqs_settle(p_store uuid[], p_group text[]) RETURNS uuid[]
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    UPDATE simple_mq.messages AS m SET state = 'b'
    FROM (
        SELECT u.store_id, r.message_id
        FROM (SELECT DISTINCT g.store_id, g.name FROM unnest(p_store, p_group) AS g (store_id, name)) AS u
        CROSS JOIN LATERAL (
            SELECT l.message_id FROM simple_mq.messages AS l
            WHERE l.queue_id = u.store_id AND l.message_group = u.name AND l.state IN ('w', 'r', 't') AND l.state = 'r'
            OFFSET 0
        ) AS r
        WHERE EXISTS (
            SELECT 1 FROM simple_mq.messages AS t
            WHERE t.queue_id = u.store_id AND t.message_group = u.name AND t.state IN ('w', 'r', 't') AND t.state = 't'
        ) OR EXISTS (
            SELECT 1 FROM simple_mq.messages AS b
            WHERE b.queue_id = u.store_id AND b.message_group = u.name AND b.state = 'b' AND b.message_id < r.message_id
        )
    ) AS late
    WHERE m.queue_id = ANY(ARRAY[late.store_id]) AND m.message_id = ANY(ARRAY[late.message_id]);
    RETURN simple_mq.promote(p_store, p_group);
END $$;
COMMENT ON FUNCTION simple_mq.sqs_settle IS
    'Internal: makes the oldest message of each group ready, unless some of the group are in flight; returns the store '
    'of each that is ready now. The caller holds the locks of the groups.';
