-- Messages that are pushed with SQL and are delivered at a time: timers in the caller's own transaction, each with a key
-- that the server makes. The caller, queen.push_many, has checked the messages.
CREATE OR REPLACE FUNCTION queen.push_timers(
    p_queue_id bigint, p_payload text[], p_partition text[], p_transaction_id text[], p_headers jsonb[],
    p_at timestamptz
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_traceparent CONSTANT text := current_setting('queen.traceparent', true);
BEGIN
    IF NOT isfinite(p_at) OR p_at > queen.clock() + interval '3660 days' THEN
        RAISE EXCEPTION 'deliver_at must be a time at most 3660 days ahead' USING
            ERRCODE = 'invalid_parameter_value', DETAIL = format('It is %s.', p_at),
            HINT = 'Without it the message is delivered at once.';
    END IF;
    INSERT INTO queen.timers (deliver_at, queue_id, key, partition, transaction_id, message)
    SELECT greatest(p_at, queen.clock()), p_queue_id, k.key, coalesce(k.partition, 'Default'),
        coalesce(k.transaction_id, k.key),
        format(
            '{%s"transactionId":%s,"payload":%s}', queen.fields_of_push(v_traceparent, k.headers),
            to_json(coalesce(k.transaction_id, k.key)), k.payload)
    FROM (
        SELECT u.*, gen_random_uuid()::text AS key
        FROM unnest(p_payload, p_partition, p_transaction_id, p_headers)
            WITH ORDINALITY AS u (payload, partition, transaction_id, headers, ord)
    ) AS k
    ORDER BY k.ord;
END $$;
COMMENT ON FUNCTION queen.push_timers IS 'Internal: makes timers of messages that are pushed with SQL.';
