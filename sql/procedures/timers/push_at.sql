-- Purpose:   pushes messages in the caller's own transaction that enter the log at a time: timers (change_timers_v1), each
--            with a key that the server makes.
-- Arguments: deliver_at      not before; a time that is past: as soon as the transaction has committed
--            the others      those of queen.push and queen.push_many without a time
-- Errors:    those of queen.push_many; 22023 also for a time that is NULL, infinite or more than ten years ahead
-- Locks:     none that another transaction waits for.
-- Writes:    timers
-- Rights:    those of the owner, as queen.push.
CREATE OR REPLACE FUNCTION queen.push_many(
    queue text, payloads jsonb[], partitions text[], transaction_ids text[], deliver_at timestamptz
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint;
BEGIN
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = push_many.queue;
    IF v_queue IS NULL THEN
        RAISE EXCEPTION 'unknown queue: %', coalesce(quote_literal(push_many.queue), 'NULL') USING
            ERRCODE = 'undefined_object', HINT = 'Create the queue first, with POST /api/v1/configure or a push over HTTP.';
    END IF;
    PERFORM queen.check_outbox_rows(payloads, partitions, transaction_ids);
    IF push_many.deliver_at IS NULL OR NOT isfinite(push_many.deliver_at)
        OR push_many.deliver_at > queen.clock() + interval '3660 days' THEN
        RAISE EXCEPTION 'deliver_at must be a time, at most 3660 days from now: %',
            coalesce(push_many.deliver_at::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Leave it out to deliver the message at once.';
    END IF;
    INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)
    SELECT greatest(push_many.deliver_at, queen.clock()), v_queue, k.key, coalesce(k.partition, 'Default'), coalesce(k.transaction_id, k.key),
        format('{"transactionId":%s,"payload":%s}', to_json(coalesce(k.transaction_id, k.key)), k.payload)
    FROM (
        SELECT u.payload, u.partition, u.transaction_id, u.ord, gen_random_uuid()::text AS key
        FROM unnest(payloads, partitions, transaction_ids) WITH ORDINALITY AS u (payload, partition, transaction_id, ord)
    ) AS k
    ORDER BY k.ord;
END $$;
COMMENT ON FUNCTION queen.push_many(text, jsonb[], text[], text[], timestamptz) IS
    'Pushes messages in the caller''s own transaction that are delivered at a time.';

CREATE OR REPLACE FUNCTION queen.push(
    queue text, payload jsonb, deliver_at timestamptz, partition text DEFAULT NULL, transaction_id text DEFAULT NULL
) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT queen.push_many($1, ARRAY[$2], ARRAY[$4], ARRAY[$5], $3)
$$;
COMMENT ON FUNCTION queen.push(text, jsonb, timestamptz, text, text) IS
    'Pushes a message in the caller''s own transaction that is delivered at a time.';
