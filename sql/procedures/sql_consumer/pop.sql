-- Purpose:   pops messages in the caller's own transaction: they are leased, or done, if and only if it commits.
-- Arguments: queue, consumer_group  they must exist (null: queue mode): see queen.subscribe
--            partition      of this partition; null: of those that have been ready the longest, as an HTTP pop
--            batch          most messages, 1 to 10000; partitions: most partitions, 1 to 64
--            lease_seconds  length of the lease, from the commit; null: the queue's
--            auto_ack       no lease: the messages are done when the transaction commits
-- Returns:   the messages: by partition, in order of offsets. None: nothing is ready; or pops are stopped, or
--            the queue or group is paused
-- Errors:    42704 unknown queue or group; 55000 the group has not all its cursors; 22023 an argument is wrong; 0A000 the
--            queue is encrypted, a payload is no jsonb, or the isolation is not READ COMMITTED
-- Locks:     the cursors whose messages it returns, with SKIP LOCKED, until the transaction ends; nothing else.
-- Writes:    partition_consumers, open_cursors.
-- Rights:    those of the owner. EXECUTE is that of queen_consumer (subscribe.sql).
CREATE OR REPLACE FUNCTION queen.pop(
    queue text, consumer_group text DEFAULT NULL, partition text DEFAULT NULL, batch int DEFAULT 1,
    partitions int DEFAULT 1, lease_seconds int DEFAULT NULL, auto_ack bool DEFAULT false
) RETURNS SETOF queen.popped
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_queue queen.queues;
    v_grp bigint;
    v_part bigint;
    v_lease CONSTANT uuid := gen_random_uuid();
    v_found queen.popped[];
BEGIN
    PERFORM queen.enter();
    v_now := queen.clock();
    PERFORM queen.check_pop(batch, partitions, lease_seconds);
    SELECT * INTO v_queue FROM queen.queues AS q WHERE q.name = pop.queue;
    v_grp := queen.group_for_transaction(v_queue, pop.queue, consumer_group, v_now);
    IF v_grp IS NULL OR EXISTS (
        SELECT 1 FROM queen.system_state AS s WHERE s.key = 'pop_maintenance_mode' AND s.value = 'true') THEN
        RETURN;
    END IF;
    IF pop.partition IS NOT NULL THEN
        SELECT p.id INTO v_part FROM queen.partitions AS p WHERE p.queue_id = v_queue.id AND p.name = pop.partition;
        IF v_part IS NULL THEN
            RETURN;
        END IF;
    END IF;
    v_found := queen.pop_for_transaction(
        v_queue, v_grp, v_part, batch, partitions, v_lease,
        coalesce(nullif(lease_seconds, 0), nullif(v_queue.lease_time, 0), 60), v_now);
    IF coalesce(auto_ack, false) AND v_found IS NOT NULL THEN
        PERFORM queen.ack_for_transaction(v_lease, NULL, 'c', NULL);
    END IF;
    RETURN QUERY
    SELECT m.message_id, m.transaction_id, m.partition, m.off, m.payload, m.created_at, m.delivery_attempt,
        CASE WHEN NOT coalesce(auto_ack, false) THEN m.lease_id END, m.trace_id, m.producer_sub, m.headers
    FROM unnest(v_found) AS m;
END $$;
COMMENT ON FUNCTION queen.pop IS
    'Pops messages in the caller''s own transaction: they are leased, or done, if and only if it commits.';

CREATE OR REPLACE FUNCTION queen.check_pop(p_batch int, p_partitions int, p_seconds int) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_wrong CONSTANT text := CASE
        WHEN coalesce(p_batch NOT BETWEEN 1 AND 10000, true) THEN 'batch must be 1 to 10000'
        WHEN coalesce(p_partitions NOT BETWEEN 1 AND 64, true) THEN 'partitions must be 1 to 64'
        WHEN p_seconds NOT BETWEEN 1 AND 604800 THEN 'lease_seconds must be 1 to 604800'
    END;
BEGIN
    IF v_wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', v_wrong USING ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION queen.check_pop IS 'Internal: refuses arguments that are no pop.';

-- The group of a pop; null: it delivers nothing now, because it begins later or is paused.
CREATE OR REPLACE FUNCTION queen.group_for_transaction(
    p_queue queen.queues, p_name text, p_group text, p_now timestamptz
) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_name CONSTANT text := coalesce(nullif(p_group, ''), '__QUEUE_MODE__');
    v_group queen.consumer_groups_metadata;
BEGIN
    IF p_queue.id IS NULL THEN
        RAISE EXCEPTION 'unknown queue: %', coalesce(quote_literal(p_name), 'NULL') USING
            ERRCODE = 'undefined_object', HINT = 'Create the queue first, with POST /api/v1/configure or a push over HTTP.';
    ELSIF p_queue.encryption_enabled THEN
        RAISE EXCEPTION 'the queue % is encrypted, and the database has no key', quote_literal(p_name) USING
            ERRCODE = 'feature_not_supported', HINT = 'Pop it over HTTP.';
    END IF;
    SELECT * INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = p_queue.id AND g.name = v_name;
    IF v_group.id IS NULL OR v_group.subscribed_upto < 0 THEN
        RAISE EXCEPTION 'the queue % has no consumer group %', quote_literal(p_name), quote_literal(v_name) USING
            ERRCODE = 'undefined_object', DETAIL = 'A pop of SQL makes no group, because that would lock the queue until the commit.',
            HINT = 'Make it once, in a transaction of its own: SELECT queen.subscribe(queue, consumer_group).';
    ELSIF v_group.paused OR p_queue.paused OR (v_group.starts_at >= p_now AND NOT v_group.begins) THEN
        RETURN NULL;
    ELSIF NOT queen.has_all_cursors(v_group, p_now) THEN
        RAISE EXCEPTION 'the consumer group % has not begun in all partitions of %', quote_literal(v_name), quote_literal(p_name)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Complete it, in a transaction of its own: SELECT queen.subscribe(queue, consumer_group).';
    END IF;
    RETURN v_group.id;
END $$;
COMMENT ON FUNCTION queen.group_for_transaction IS 'Internal: the group of a pop of SQL.';

-- Claims cursors, those that have been ready the longest first, and reads their messages; null: there are none. Most pops
-- find one among the first; the second search is for those that find others at work there. A message that cannot be
-- returned holds up its own partition only, from itself on; it is an error if nothing else is found.
CREATE OR REPLACE FUNCTION queen.pop_for_transaction(
    p_queue queen.queues, p_grp bigint, p_part bigint, p_batch int, p_partitions int, p_lease uuid, p_seconds int,
    p_now timestamptz
) RETURNS queen.popped[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_limit int;
    v_parts bigint[];
    v_tried bigint[] := '{}';
    v_part bigint;
    v_one record;
    v_bytes bigint := 67108864;
    v_left int := p_partitions;
    v_refused text;
    v_found queen.popped[];
BEGIN
    FOREACH v_limit IN ARRAY ARRAY[p_partitions + 16, 1000] LOOP
        v_parts := CASE WHEN p_part IS NULL THEN queen.ready_for_transaction(p_grp, v_limit, v_limit = 1000, p_now) ELSE ARRAY[p_part] END;
        FOREACH v_part IN ARRAY v_parts LOOP
            CONTINUE WHEN v_part = ANY(v_tried);
            v_tried := v_tried || v_part;
            SELECT * INTO v_one FROM queen.claim_for_transaction(
                p_grp, v_part, p_queue, p_batch, v_bytes, v_found IS NULL, p_lease, p_seconds, p_now);
            IF v_one.refused IS NOT NULL THEN
                v_refused := v_one.refused;
                SELECT * INTO v_one FROM queen.claim_for_transaction(
                    p_grp, v_part, p_queue, 1, v_bytes, v_found IS NULL, p_lease, p_seconds, p_now);
            END IF;
            IF v_one.idle THEN
                INSERT INTO queen.open_cursors (part_id, grp_id, held) VALUES (v_part, p_grp, false) ON CONFLICT DO NOTHING;
            END IF;
            IF v_one.messages > 0 THEN
                v_found := v_found || v_one.popped;
                p_batch := p_batch - v_one.messages;
                v_bytes := v_bytes - v_one.bytes;
                v_left := v_left - 1;
            END IF;
            IF least(p_batch, v_bytes, v_left) <= 0 THEN
                RETURN v_found;
            END IF;
        END LOOP;
        EXIT WHEN p_part IS NOT NULL OR cardinality(v_parts) < v_limit;
    END LOOP;
    IF v_found IS NULL AND v_refused IS NOT NULL THEN
        RAISE EXCEPTION '%', v_refused USING ERRCODE = 'feature_not_supported', HINT = 'Pop it over HTTP.';
    END IF;
    RETURN v_found;
END $$;
COMMENT ON FUNCTION queen.pop_for_transaction IS 'Internal: claims cursors for a pop of SQL and reads their messages.';

-- The messages of a claim of one cursor.
CREATE OR REPLACE FUNCTION queen.claimed_messages(
    p_queue text, p_part bigint, p_claimed queen.claims, p_lease uuid
) RETURNS queen.popped[]
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_acked CONSTANT bigint := p_claimed.acked[1];
    v_upto CONSTANT bigint := p_claimed.upto[1];
    v_ahead CONSTANT int8multirange := coalesce(p_claimed.ahead[1], '{}');
    v_partition CONSTANT text := (SELECT p.name FROM queen.partitions AS p WHERE p.id = p_part);
BEGIN
    RETURN (
        SELECT array_agg(ROW(
            queen.message_uuid(p_part, m.off), m.transaction_id, v_partition, m.off,
            queen.payload_as_jsonb(m.payload, m.key_id, format('queue %L, partition %L, offset %s', p_queue, v_partition, m.off)),
            m.created_at, CASE WHEN m.off <= p_claimed.seen[1] THEN p_claimed.attempt[1] ELSE 1 END, p_lease, m.trace_id,
            m.producer_sub, m.headers)::queen.popped ORDER BY m.off)
        FROM (
            SELECT l.last_off, l.n FROM queen.segments AS l
            WHERE l.part_id = p_part AND l.last_off > v_acked AND l.n > 0 AND l.last_off <= (
                SELECT e.last_off FROM queen.segments AS e
                WHERE e.part_id = p_part AND e.last_off >= v_upto ORDER BY e.last_off LIMIT 1
            )
        ) AS s
        CROSS JOIN LATERAL queen.segment_messages(p_part, s.last_off, ARRAY(
            SELECT o FROM generate_series(greatest(s.last_off - s.n, v_acked) + 1, least(s.last_off, v_upto)) AS o
            WHERE NOT v_ahead @> o)) AS m);
END $$;
COMMENT ON FUNCTION queen.claimed_messages IS 'Internal: the messages of a claim, for a pop of SQL.';

-- A jsonb has no \u0000, and no number that a numeric cannot have.
CREATE OR REPLACE FUNCTION queen.payload_as_jsonb(p_payload json, p_key_id text, p_place text) RETURNS jsonb
LANGUAGE plpgsql
AS $$
BEGIN
    IF p_key_id IS NOT NULL THEN
        RAISE EXCEPTION 'a message is encrypted, and the database has no key: %', p_place USING
            ERRCODE = 'feature_not_supported', HINT = 'Pop it over HTTP.';
    END IF;
    RETURN p_payload::jsonb;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RAISE EXCEPTION 'a payload is no jsonb: %: %', p_place, sqlerrm USING
        ERRCODE = 'feature_not_supported', HINT = 'Pop it over HTTP.';
END $$;
COMMENT ON FUNCTION queen.payload_as_jsonb IS 'Internal: a payload as a jsonb.';
