-- Purpose:   makes a consumer group, or completes one, as its first pop over HTTP does.
-- Arguments: queue              it must exist
--            consumer_group     null: queue mode
--            subscription_from  the group gets what is younger than that time; null: everything that is kept
-- Errors:    42704 unknown queue; 22023 a group without characters or longer than 255, or queue mode with a start
-- Locks:     those of subscribe_v1, until the transaction ends: call it in one of its own.
-- Writes:    what subscribe_v1 writes.
-- Rights:    those of the owner. EXECUTE is that of queen_consumer (subscribe.sql).
CREATE OR REPLACE FUNCTION queen.subscribe(
    queue text, consumer_group text DEFAULT NULL, subscription_from timestamptz DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_group CONSTANT text := coalesce(nullif(consumer_group, ''), '__QUEUE_MODE__');
    v_step record;
BEGIN
    PERFORM queen.enter();
    IF length(v_group) > 255 THEN
        RAISE EXCEPTION 'the consumer group must have 1 to 255 characters' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF v_group = '__QUEUE_MODE__' AND subscription_from IS NOT NULL THEN
        RAISE EXCEPTION 'queue mode starts at the oldest message: it has no subscription_from'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    LOOP
        SELECT * INTO v_step FROM queen.subscribe_v1(
            queue, v_group, CASE WHEN subscription_from IS NULL THEN 'all' ELSE 'timestamp' END,
            subscription_from, false, true, 1000);
        IF v_step.queue_id IS NULL THEN
            RAISE EXCEPTION 'unknown queue: %', coalesce(quote_literal(queue), 'NULL') USING
                ERRCODE = 'undefined_object', HINT = 'Create the queue first, with POST /api/v1/configure or a push over HTTP.';
        END IF;
        EXIT WHEN v_step.complete OR v_step.starts_in IS NOT NULL;
    END LOOP;
END $$;
COMMENT ON FUNCTION queen.subscribe IS 'Makes a consumer group, for pops of SQL.';

-- Who may consume: the role queen_consumer, and to whom the owner has granted it; as queen_producer (outbox/push.sql).
DO $$
BEGIN
    -- They run with the rights of their owner.
    REVOKE EXECUTE ON FUNCTION queen.pop, queen.ack, queen.ack_many, queen.subscribe, queen.settle_cursor FROM PUBLIC;
    IF to_regrole('queen_consumer') IS NULL
        AND (SELECT r.rolcreaterole OR r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
        BEGIN
            CREATE ROLE queen_consumer NOLOGIN;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL; -- made at this moment for another database
        END;
    END IF;
    IF to_regrole('queen_consumer') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA queen TO queen_consumer;
        GRANT EXECUTE ON FUNCTION queen.pop, queen.ack, queen.ack_many, queen.subscribe TO queen_consumer;
    END IF;
END $$;
