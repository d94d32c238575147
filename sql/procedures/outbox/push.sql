-- Purpose:   pushes messages in the caller's own transaction: they exist if and only if it commits.
-- Arguments: queue           the name of a queue that exists
--            payloads        JSON values
--            partitions      one name per payload; null, or a null element: Default. One that belongs to another database
--                            of the installation gets the name of this one, as in Default@a.
--            transaction_ids one per payload; null, or a null element: the server makes one. In a partition an id is stored
--                            once; another message with it is dropped when it is moved into the log.
--            deliver_at      null, or a time: they are timers, which enter the log then (push_timers)
--            headers         one per payload: null, or a map of texts
-- Errors:    42704 unknown queue; 42501 the queue takes no pushes with SQL; 22004 a payload is SQL's NULL; 22023 another
--            argument is wrong; 54000 a payload or headers are too large. Each has a detail and a hint.
-- Locks:     none that another transaction waits for.
-- Writes:    outbox, a row for all messages; or timers. A worker moves them into the log once the transaction has committed
--            (read_outbox_v1).
-- Rights:    those of the owner, so that a producer needs to execute this, and to use the schema, and nothing else.
CREATE OR REPLACE FUNCTION queen.push_many(
    queue text, payloads jsonb[], partitions text[] DEFAULT NULL, transaction_ids text[] DEFAULT NULL,
    deliver_at timestamptz DEFAULT NULL, headers jsonb[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_queue bigint;
    v_takes bool;
    v_n CONSTANT int := cardinality(payloads);
    v_lines CONSTANT text := array_to_string(payloads, E'\n');
    v_traceparent CONSTANT text := current_setting('queen.traceparent', true);
    v_partitions text[];
    v_ids text[];
    v_fields text[];
BEGIN
    IF current_setting('queen.clock', true) <> '' THEN
        PERFORM set_config('queen.clock', '', true);
    END IF;
    SELECT q.id, q.sql_push INTO v_queue, v_takes FROM queen.queues AS q WHERE q.name = push_many.queue;
    IF v_queue IS NULL THEN
        RAISE EXCEPTION 'unknown queue: %', coalesce(quote_literal(push_many.queue), 'NULL') USING
            ERRCODE = 'undefined_object', DETAIL = 'queen.push and queen.push_many make no queues.',
            HINT = 'Create the queue first, with POST /api/v1/configure or a push over HTTP.';
    END IF;
    IF NOT v_takes THEN
        RAISE EXCEPTION 'the queue takes no pushes with SQL: %', quote_literal(push_many.queue) USING
            ERRCODE = 'insufficient_privilege', DETAIL = 'Its option sqlPush is false.',
            HINT = 'Push over HTTP, or set the option with POST /api/v1/configure.';
    END IF;
    -- What needs no look at each message, in the common case.
    IF transaction_ids IS NOT NULL OR headers IS NOT NULL OR octet_length(v_lines) > 16777216
        OR (array_ndims(payloads) = 1 AND array_position(payloads, NULL) IS NULL) IS NOT TRUE
        OR (partitions IS NULL OR (
            cardinality(partitions) = v_n AND partitions[1] = ALL(partitions) AND length(partitions[1]) BETWEEN 1 AND 255
        )) IS NOT TRUE THEN
        PERFORM queen.check_outbox_rows(payloads, partitions, transaction_ids, headers);
    END IF;
    IF EXISTS (SELECT 1 FROM queen.shard_list) THEN
        partitions := queen.local_partitions(push_many.queue, partitions, v_n);
    END IF;
    IF deliver_at IS NOT NULL THEN
        PERFORM queen.push_timers(v_queue, payloads::text[], partitions, transaction_ids, headers, deliver_at);
        RETURN;
    END IF;
    v_partitions := CASE
        WHEN partitions IS NULL THEN ARRAY['Default']
        WHEN partitions[1] = ALL(partitions) THEN ARRAY[partitions[1]]
        ELSE ARRAY(SELECT coalesce(u.partition, 'Default') FROM unnest(partitions) AS u (partition))
    END;
    IF transaction_ids IS NOT NULL THEN
        v_ids := ARRAY(SELECT u.id FROM unnest(transaction_ids) AS u (id));
    END IF;
    IF headers IS NOT NULL THEN
        v_fields := ARRAY(SELECT queen.fields_of_push(v_traceparent, u.headers) FROM unnest(headers) AS u (headers));
    ELSIF v_traceparent <> '' THEN
        v_fields := ARRAY[queen.fields_of_push(v_traceparent, NULL)];
    END IF;
    IF v_n <= 1000 AND octet_length(v_lines) <= 1048576 THEN
        INSERT INTO queen.outbox (queue_id, partitions, transaction_ids, fields, payloads, n)
        SELECT v_queue, v_partitions, v_ids, v_fields, v_lines, v_n WHERE v_n > 0;
        RETURN;
    END IF;
    -- In several rows, so that a move is no larger than it wants to be.
    INSERT INTO queen.outbox (queue_id, partitions, transaction_ids, fields, payloads, n)
    SELECT v_queue,
        CASE WHEN cardinality(v_partitions) = 1 THEN v_partitions ELSE array_agg(m.partition ORDER BY m.ord) END,
        CASE WHEN v_ids IS NOT NULL THEN array_agg(m.id ORDER BY m.ord) END,
        CASE WHEN cardinality(v_fields) > 1 THEN array_agg(m.fields ORDER BY m.ord) ELSE v_fields END,
        string_agg(m.payload, E'\n' ORDER BY m.ord), count(*)
    FROM (
        SELECT u.*, (u.ord - 1) / 1000 AS thousand,
            (sum(octet_length(u.payload)) OVER (ORDER BY u.ord) - 1) / 1048576 AS mebibyte
        FROM unnest(payloads::text[], v_partitions, v_ids, v_fields)
            WITH ORDINALITY AS u (payload, partition, id, fields, ord)
    ) AS m
    GROUP BY m.thousand, m.mebibyte
    ORDER BY min(m.ord);
END $$;
COMMENT ON FUNCTION queen.push_many IS
    'Pushes messages in the caller''s own transaction: they exist if and only if it commits.';

CREATE OR REPLACE FUNCTION queen.push(
    queue text, payload jsonb, partition text DEFAULT NULL, transaction_id text DEFAULT NULL,
    deliver_at timestamptz DEFAULT NULL, headers jsonb DEFAULT NULL
) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT queen.push_many(
        $1, ARRAY[$2], CASE WHEN $3 IS NOT NULL THEN ARRAY[$3] END, CASE WHEN $4 IS NOT NULL THEN ARRAY[$4] END, $5,
        CASE WHEN $6 IS NOT NULL THEN ARRAY[$6] END)
$$;
COMMENT ON FUNCTION queen.push IS
    'Pushes a message in the caller''s own transaction: it exists if and only if that commits.';

-- Raises an error for the first row that cannot be a message. An id must not have the form of one that the server makes
-- (020_ids.sql), as it could be that of another message.
CREATE OR REPLACE FUNCTION queen.check_outbox_rows(
    p_payload jsonb[], p_partition text[], p_transaction_id text[], p_headers jsonb[]
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_wrong record;
BEGIN
    IF p_payload IS NULL OR cardinality(p_payload) <> coalesce(cardinality(p_partition), cardinality(p_payload))
        OR cardinality(p_payload) <> coalesce(cardinality(p_transaction_id), cardinality(p_payload))
        OR cardinality(p_payload) <> coalesce(cardinality(p_headers), cardinality(p_payload)) THEN
        RAISE EXCEPTION 'payloads, partitions, transaction_ids and headers must have the same length' USING
            ERRCODE = 'invalid_parameter_value',
            DETAIL = format('Their lengths are %s, %s, %s and %s.', coalesce(cardinality(p_payload)::text, 'NULL'),
                coalesce(cardinality(p_partition)::text, 'NULL'), coalesce(cardinality(p_transaction_id)::text, 'NULL'),
                coalesce(cardinality(p_headers)::text, 'NULL')),
            HINT = 'All but payloads may also be NULL.';
    END IF;
    IF p_headers IS NOT NULL THEN
        PERFORM queen.check_headers(p_headers);
    END IF;
    SELECT w.* INTO v_wrong
    FROM (
        SELECT u.ord, u.payload, u.partition, u.id,
            CASE
                WHEN u.payload IS NULL THEN 'null_value_not_allowed'
                WHEN octet_length(u.payload) > 16777216 THEN 'program_limit_exceeded'
                WHEN length(u.partition) NOT BETWEEN 1 AND 255 OR length(u.id) NOT BETWEEN 1 AND 255
                    OR (u.id LIKE '________-____-8001-8000-____________'
                        AND u.id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-8001-8000-[0-9a-f]{12}$') THEN 'invalid_parameter_value'
            END AS code
        FROM unnest(p_payload::text[], p_partition, p_transaction_id) WITH ORDINALITY AS u (payload, partition, id, ord)
    ) AS w
    WHERE w.code IS NOT NULL ORDER BY w.ord LIMIT 1;
    IF v_wrong.code = 'null_value_not_allowed' THEN
        RAISE EXCEPTION 'message %: the payload is NULL', v_wrong.ord USING
            ERRCODE = v_wrong.code, DETAIL = 'SQL''s NULL is no JSON value.', HINT = 'JSON''s null is ''null''::jsonb.';
    ELSIF v_wrong.code = 'program_limit_exceeded' THEN
        RAISE EXCEPTION 'message %: the payload is longer than 16777216 bytes', v_wrong.ord USING
            ERRCODE = v_wrong.code, DETAIL = format('It has %s bytes as text.', octet_length(v_wrong.payload)),
            HINT = 'Store it elsewhere, and push where it is.';
    ELSIF length(v_wrong.partition) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'message %: the partition must have 1 to 255 characters', v_wrong.ord USING
            ERRCODE = v_wrong.code, DETAIL = format('It has %s.', length(v_wrong.partition)),
            HINT = 'NULL is the partition Default.';
    ELSIF length(v_wrong.id) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'message %: the transaction id must have 1 to 255 characters', v_wrong.ord USING
            ERRCODE = v_wrong.code, DETAIL = format('It has %s.', length(v_wrong.id)),
            HINT = 'With NULL the server makes one.';
    ELSIF v_wrong.code IS NOT NULL THEN
        RAISE EXCEPTION 'message %: the transaction id has the form of a message id', v_wrong.ord USING
            ERRCODE = v_wrong.code, DETAIL = format('%L is an id that only the server makes.', v_wrong.id),
            HINT = 'Take another one, or NULL, with which the server makes one.';
    END IF;
END $$;
COMMENT ON FUNCTION queen.check_outbox_rows IS 'Internal: refuses rows that cannot be messages.';

-- Who may push: the role queen_producer, and to whom the owner has granted it. Roles belong to the cluster, rights to the
-- database. The role is made if the installer may; else an administrator makes it (deploy/postgresql/roles.sql), and the
-- next set-up grants it the rights.
DO $$
BEGIN
    -- They run with the rights of their owner.
    REVOKE EXECUTE ON FUNCTION queen.push, queen.push_many FROM PUBLIC;
    IF to_regrole('queen_producer') IS NULL
        AND (SELECT r.rolcreaterole OR r.rolsuper FROM pg_roles AS r WHERE r.rolname = current_user) THEN
        BEGIN
            CREATE ROLE queen_producer NOLOGIN;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN
                NULL; -- made at this moment for another database
        END;
    END IF;
    IF to_regrole('queen_producer') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA queen TO queen_producer;
        GRANT EXECUTE ON FUNCTION queen.push, queen.push_many TO queen_producer;
    END IF;
END $$;
