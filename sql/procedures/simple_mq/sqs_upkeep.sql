-- Purpose:   does in at most p_step queues what time has brought about, without a receive: dead letters, and messages
--            whose delay or visibility timeout is over. Called by the server that leads the background services.
-- Returns:   the queues, their dead-letter queues and how many messages went there.
-- Locks:     those of simple_mq.sqs_route.
CREATE OR REPLACE FUNCTION simple_mq.sqs_sweep_v1(p_step int)
RETURNS TABLE (queue_id uuid, dlq_id uuid, dead int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
BEGIN
    RETURN QUERY SELECT r.* FROM simple_mq.sqs_route_all(ARRAY(
        SELECT q.queue_id FROM simple_mq.sqs_queues AS q
        WHERE EXISTS (
            SELECT 1 FROM simple_mq.messages AS m
            WHERE m.queue_id = q.store_id AND m.state = 't' AND m.visible_at <= v_now
        ) OR EXISTS (
            SELECT 1 FROM simple_mq.messages AS m
            WHERE m.queue_id = q.store_id AND m.state = 'd' AND m.visible_at <= simple_mq.sqs_due_from(q, v_now)
        )
        LIMIT p_step
    )) AS r;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_sweep_v1 IS 'Does what time has brought about in queues of SQS.';

-- Purpose:   removes messages of one queue that are older than its retention, at most p_step.
-- Arguments: p_not_after: an upper bound of the clock (null: none), as for queen.older_than.
-- Returns:   how many; 0: no queue has any.
-- Locks:     groups, messages, counts.
CREATE OR REPLACE FUNCTION simple_mq.sqs_expire_v1(p_not_after timestamptz, p_step int) RETURNS int
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz := queen.older_than('0 seconds', p_not_after);
    v_queue simple_mq.sqs_queues;
    v_before uuid;
    v_old uuid[];
    v_groups text[];
    v_removed int;
    v_in_flight int;
    v_delayed int;
BEGIN
    SELECT q.* INTO v_queue FROM simple_mq.sqs_queues AS q
    WHERE EXISTS (
        SELECT 1 FROM simple_mq.messages AS m
        WHERE m.queue_id = q.store_id
            AND m.message_id < simple_mq.uuid_at(v_now - make_interval(secs => q.retention), '0000000000000000')
    ) LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    v_before := simple_mq.uuid_at(v_now - make_interval(secs => v_queue.retention), '0000000000000000');
    SELECT array_agg(o.message_id), array_agg(o.message_group) INTO v_old, v_groups FROM (
        SELECT m.message_id, m.message_group FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue.store_id AND m.message_id < v_before ORDER BY m.message_id LIMIT p_step
    ) AS o;
    IF v_queue.fifo AND v_groups IS NOT NULL THEN
        PERFORM simple_mq.lock_groups(array_fill(v_queue.store_id, ARRAY[cardinality(v_groups)]), v_groups);
    ELSE
        v_groups := NULL;
    END IF;
    WITH old AS (
        SELECT m.message_id FROM unnest(v_old) AS o (message_id) JOIN simple_mq.messages AS m
            ON m.queue_id = ANY(ARRAY[v_queue.store_id]) AND m.message_id = ANY(ARRAY[o.message_id])
        ORDER BY o.message_id FOR UPDATE OF m
    ), removed AS (
        DELETE FROM simple_mq.messages AS m USING old
        WHERE m.queue_id = ANY(ARRAY[v_queue.store_id]) AND m.message_id = ANY(ARRAY[old.message_id]) RETURNING m.state
    )
    SELECT count(*), count(*) FILTER (WHERE r.state = 't'), count(*) FILTER (WHERE r.state = 'd')
    INTO v_removed, v_in_flight, v_delayed FROM removed AS r;
    PERFORM simple_mq.sqs_settle(array_agg(v_queue.store_id), array_agg(g.name))
    FROM unnest(v_groups) AS g (name) HAVING count(*) > 0;
    PERFORM simple_mq.sqs_count(
        ARRAY[v_queue.store_id], ARRAY[-v_removed::bigint], ARRAY[-v_in_flight::bigint], ARRAY[-v_delayed::bigint]);
    RETURN v_removed;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_expire_v1 IS 'Removes messages of SQS that are older than the retention of their queue.';

-- Purpose:   forgets deduplication ids and attempts of more than five minutes ago, at most p_step of each.
-- Returns:   how many.
CREATE OR REPLACE FUNCTION simple_mq.sqs_forget_v1(p_not_after timestamptz, p_step int) RETURNS int
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_before timestamptz := queen.older_than('5 minutes', p_not_after);
    v_ids int;
    v_attempts int;
BEGIN
    DELETE FROM simple_mq.sqs_deduplication AS d WHERE d.ctid = ANY(ARRAY(
        SELECT o.ctid FROM simple_mq.sqs_deduplication AS o WHERE o.sent_at < v_before
        ORDER BY o.sent_at LIMIT p_step FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS v_ids = ROW_COUNT;
    DELETE FROM simple_mq.sqs_attempts AS a WHERE a.ctid = ANY(ARRAY(
        SELECT o.ctid FROM simple_mq.sqs_attempts AS o WHERE o.received_at < v_before
        ORDER BY o.received_at LIMIT p_step FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS v_attempts = ROW_COUNT;
    RETURN v_ids + v_attempts;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_forget_v1 IS 'Forgets old deduplication ids and attempts.';
