CREATE OR REPLACE FUNCTION simple_mq.sqs_route_all(p_queue uuid[])
RETURNS TABLE (queue_id uuid, dlq_id uuid, dead int)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_queue simple_mq.sqs_queues;
    v_routed record;
    v_store uuid[] := '{}';
    v_messages bigint[] := '{}';
    v_in_flight bigint[] := '{}';
    v_delayed bigint[] := '{}';
BEGIN
    FOR v_queue IN
        SELECT q.* FROM simple_mq.sqs_queues AS q WHERE q.queue_id = ANY(p_queue) ORDER BY q.queue_id
    LOOP
        SELECT * INTO v_routed FROM simple_mq.sqs_route(v_queue, v_now, false);
        v_store := v_store || v_queue.store_id || v_routed.dlq_store;
        v_messages := v_messages || -v_routed.dead::bigint || v_routed.dead::bigint;
        v_in_flight := v_in_flight || -v_routed.ended::bigint || 0::bigint;
        v_delayed := v_delayed || -v_routed.begun::bigint || 0::bigint;
        queue_id := v_queue.queue_id;
        dlq_id := v_routed.dlq_id;
        dead := v_routed.dead;
        RETURN NEXT;
    END LOOP;
    PERFORM simple_mq.sqs_count(v_store, v_messages, v_in_flight, v_delayed);
END $$;
COMMENT ON FUNCTION simple_mq.sqs_route_all IS 'Internal: simple_mq.sqs_route for some queues, with their counts.';
