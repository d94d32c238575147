-- Purpose:   pushes messages in the caller's own transaction: they exist if and only if it commits.
-- Arguments: queue           the name of a queue that exists
--            payloads        JSON values
--            partitions      one name per payload; null, or a null element: Default
--            transaction_ids one per payload; null, or a null element: the server makes one. In a partition an id is stored
--                            once; another message with it is dropped when it is moved into the log.
-- Errors:    42704 unknown queue; 22004 a payload is SQL's NULL; 22023 another argument is wrong; 54000 a payload is too large
-- Locks:     none that another transaction waits for.
-- Writes:    outbox. A worker moves the rows into the log once the transaction has committed (read_outbox_v1).
-- Rights:    those of the owner, so that a producer needs USAGE on the schema only.
CREATE OR REPLACE FUNCTION queen.push_many(
    queue text, payloads jsonb[], partitions text[] DEFAULT NULL, transaction_ids text[] DEFAULT NULL
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
    INSERT INTO queen.outbox (queue_id, partition, transaction_id, payload)
    SELECT v_queue, coalesce(u.partition, 'Default'), u.transaction_id, u.payload::text
    FROM unnest(payloads, partitions, transaction_ids) WITH ORDINALITY AS u (payload, partition, transaction_id, ord)
    ORDER BY u.ord;
END $$;
COMMENT ON FUNCTION queen.push_many(text, jsonb[], text[], text[]) IS
    'Pushes messages in the caller''s own transaction: they exist if and only if it commits.';

CREATE OR REPLACE FUNCTION queen.push(
    queue text, payload jsonb, partition text DEFAULT NULL, transaction_id text DEFAULT NULL
) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT queen.push_many($1, ARRAY[$2], ARRAY[$3], ARRAY[$4])
$$;
COMMENT ON FUNCTION queen.push(text, jsonb, text, text) IS
    'Pushes a message in the caller''s own transaction: it exists if and only if that commits.';

-- Raises an error for the first row that cannot be a message. An id must not have the form of one that the server makes
-- (020_ids.sql), as it could be that of another message.
CREATE OR REPLACE FUNCTION queen.check_outbox_rows(p_payload jsonb[], p_partition text[], p_transaction_id text[])
RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_wrong text;
    v_code text;
    v_ord bigint;
BEGIN
    IF p_payload IS NULL OR cardinality(p_payload) <> coalesce(cardinality(p_partition), cardinality(p_payload))
        OR cardinality(p_payload) <> coalesce(cardinality(p_transaction_id), cardinality(p_payload)) THEN
        RAISE EXCEPTION 'payloads, partitions and transaction_ids must have the same length: %, %, %',
            coalesce(cardinality(p_payload)::text, 'NULL'), cardinality(p_partition), cardinality(p_transaction_id)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'partitions and transaction_ids may also be NULL.';
    END IF;
    SELECT w.wrong, w.code, w.ord INTO v_wrong, v_code, v_ord
    FROM (
        SELECT u.ord,
            CASE
                WHEN u.payload IS NULL THEN 'the payload is NULL; JSON''s null is ''null''::jsonb'
                WHEN octet_length(u.payload::text) > 16777216 THEN 'the payload is longer than 16777216 bytes'
                WHEN length(u.partition) NOT BETWEEN 1 AND 255 THEN 'the partition must have 1 to 255 characters'
                WHEN length(u.id) NOT BETWEEN 1 AND 255 THEN 'the transaction id must have 1 to 255 characters'
                WHEN u.id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-8001-8000-[0-9a-f]{12}$'
                    THEN 'the transaction id has the form of a message id, which only the server makes'
            END AS wrong,
            CASE
                WHEN u.payload IS NULL THEN 'null_value_not_allowed'
                WHEN octet_length(u.payload::text) > 16777216 THEN 'program_limit_exceeded'
                ELSE 'invalid_parameter_value'
            END AS code
        FROM unnest(p_payload, p_partition, p_transaction_id) WITH ORDINALITY AS u (payload, partition, id, ord)
    ) AS w
    WHERE w.wrong IS NOT NULL ORDER BY w.ord LIMIT 1;
    IF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION 'message %: %', v_ord, v_wrong USING ERRCODE = v_code;
    END IF;
END $$;
COMMENT ON FUNCTION queen.check_outbox_rows IS 'Internal: refuses rows that cannot be messages.';
