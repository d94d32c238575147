-- Purpose:   stores the next sends of a lane of a spool file, and notes in the same transaction how far it is stored.
-- Arguments: p_lane, p_from, p_upto as for queen.replay_spool_v1; p_sent: when they were sent, by the clock of the server;
--            by message: p_queue, p_sent_id (what the sender was told), the others as for simple_mq.sqs_send_v1.
-- Returns:   how many requests of the lane are stored now; if that is not p_upto, nothing was done.
-- Errors:    P0002 if there is no such queue.
-- Locks:     the row of the lane, until commit; then those of simple_mq.sqs_lock_stores.
-- Writes:    spool_lanes, messages, counts, sqs_deduplication.
CREATE OR REPLACE FUNCTION simple_mq.sqs_replay_v1(
    p_lane uuid, p_from bigint, p_upto bigint, p_sent timestamptz, p_queue uuid[], p_sent_id uuid[], p_data text[],
    p_attributes bytea[], p_key_id text[], p_delay int[], p_group text[], p_deduplication text[]
) RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_replayed bigint;
    v_locked record;
    v_sent timestamptz;
    v_name CONSTANT uuid := gen_random_uuid();
    v_message uuid[];
BEGIN
    INSERT INTO queen.spool_lanes VALUES (p_lane, 0, queen.clock()) ON CONFLICT DO NOTHING;
    SELECT l.replayed INTO v_replayed FROM queen.spool_lanes AS l WHERE l.lane = p_lane FOR UPDATE;
    IF v_replayed <> p_from THEN
        RETURN v_replayed;
    END IF;
    SELECT l.* INTO v_locked FROM simple_mq.sqs_lock_stores(p_queue, p_delay, p_group) AS l;
    IF array_position(v_locked.stores, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'The queue was deleted' USING ERRCODE = 'P0002';
    END IF;
    v_sent := least(p_sent, v_locked.place_at);
    v_message := ARRAY(
        SELECT simple_mq.message_id(v_locked.place_at, v_name, n) FROM generate_series(1, cardinality(p_queue)) AS n
        ORDER BY n
    );
    PERFORM simple_mq.sqs_store(
        v_locked.place_at, v_sent,
        simple_mq.sqs_deduplicate(
            v_sent, v_locked.stores, v_locked.fifo, v_locked.scopes, p_deduplication, v_message, p_sent_id),
        v_locked.stores, v_locked.fifo, v_locked.delays, v_message, p_sent_id, p_data, p_attributes, p_key_id, p_group,
        p_deduplication);
    UPDATE queen.spool_lanes AS l SET replayed = p_upto, replayed_at = queen.clock() WHERE l.lane = p_lane;
    RETURN p_upto;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_replay_v1 IS 'Stores sends of SQS from the spool, and the replay position.';
