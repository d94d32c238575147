-- The other side of the benchmark: one row a message with three indexes, a head and cursors. Written for this benchmark
-- from docs alone, and tuned as the product's own procedures are: set-based, planned once, no result that is not read.
CREATE SCHEMA queen_bench_rows;
SET LOCAL search_path = queen_bench_rows;

CREATE TABLE partitions (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    queue text NOT NULL,
    number int NOT NULL,
    UNIQUE (queue, number)
);

CREATE TABLE messages (
    id uuid PRIMARY KEY,
    partition_id uuid NOT NULL,
    transaction_id text NOT NULL,
    payload jsonb NOT NULL,
    trace_id uuid,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX messages_partition_created ON messages (partition_id, created_at, id);
CREATE UNIQUE INDEX messages_partition_transaction ON messages (partition_id, transaction_id);

-- The newest message of each partition, so that a pop of any partition need not look into messages.
CREATE TABLE partition_lookup (
    partition_id uuid PRIMARY KEY,
    queue text NOT NULL,
    last_at timestamptz NOT NULL DEFAULT '-infinity',
    last_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX partition_lookup_queue ON partition_lookup (queue);

-- Cursor and lease of each partition and group.
CREATE TABLE partition_consumers (
    partition_id uuid NOT NULL,
    consumer_group text NOT NULL,
    consumed_at timestamptz NOT NULL DEFAULT '-infinity',
    consumed_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
    lease uuid,
    lease_expires_at timestamptz,
    batch_size int NOT NULL DEFAULT 0,
    acked_count int NOT NULL DEFAULT 0,
    retry_count int NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition_id, consumer_group)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Stores a JSON array of {id, partitionId, transactionId, payload, traceId}; returns the places of duplicates, from 1.
CREATE FUNCTION push(p_items jsonb) RETURNS int[]
LANGUAGE plpgsql SET enable_seqscan = off
AS $$
DECLARE
    v_stored uuid[];
BEGIN
    WITH stored AS (
        INSERT INTO queen_bench_rows.messages (id, partition_id, transaction_id, payload, trace_id)
        SELECT i.id, i."partitionId", i."transactionId", i.payload, i."traceId"
        FROM jsonb_to_recordset(p_items)
            AS i (id uuid, "partitionId" uuid, "transactionId" text, payload jsonb, "traceId" uuid)
        ON CONFLICT DO NOTHING
        RETURNING id, partition_id, created_at
    ), newest AS (
        SELECT DISTINCT ON (s.partition_id) s.partition_id, s.created_at, s.id
        FROM stored AS s ORDER BY s.partition_id, s.id DESC
    ), head AS (
        UPDATE queen_bench_rows.partition_lookup AS l SET last_at = n.created_at, last_id = n.id
        FROM newest AS n
        WHERE l.partition_id = n.partition_id AND (l.last_at, l.last_id) < (n.created_at, n.id)
    )
    SELECT array_agg(s.id) INTO v_stored FROM stored AS s;
    IF cardinality(v_stored) = jsonb_array_length(p_items) THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT i.place FROM jsonb_array_elements(p_items) WITH ORDINALITY AS i (item, place)
        WHERE v_stored IS NULL OR (i.item ->> 'id')::uuid <> ALL(v_stored)
    );
END $$;

-- Leases the partition consumed longest ago that has messages, and returns the next ones.
CREATE FUNCTION pop(p_queue text, p_group text, p_lease uuid, p_batch int, p_seconds int)
RETURNS TABLE (partition_id uuid, id uuid, transaction_id text, payload jsonb, trace_id uuid, created_at timestamptz)
LANGUAGE plpgsql SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_cursor record;
BEGIN
    SELECT c.partition_id, c.consumed_at, c.consumed_id INTO v_cursor
    FROM queen_bench_rows.partition_lookup AS l
    JOIN queen_bench_rows.partition_consumers AS c ON c.partition_id = l.partition_id AND c.consumer_group = p_group
    WHERE l.queue = p_queue AND (c.lease IS NULL OR c.lease_expires_at <= now())
        AND (l.last_at, l.last_id) > (c.consumed_at, c.consumed_id)
    ORDER BY c.updated_at
    LIMIT 1
    FOR UPDATE OF c SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT m.partition_id, m.id, m.transaction_id, m.payload, m.trace_id, m.created_at
    FROM queen_bench_rows.messages AS m
    WHERE m.partition_id = v_cursor.partition_id
        AND (m.created_at, m.id) > (v_cursor.consumed_at, v_cursor.consumed_id)
    ORDER BY m.created_at, m.id
    LIMIT p_batch;
    GET DIAGNOSTICS p_batch = ROW_COUNT;
    UPDATE queen_bench_rows.partition_consumers AS c
    SET lease = p_lease, lease_expires_at = now() + make_interval(secs => p_seconds), batch_size = p_batch,
        acked_count = 0, updated_at = now()
    WHERE c.partition_id = v_cursor.partition_id AND c.consumer_group = p_group;
END $$;

-- Completes messages by their transaction ids, under a live lease; false when there is none.
CREATE FUNCTION ack(p_partition uuid, p_group text, p_lease uuid, p_transaction_id text[]) RETURNS bool
LANGUAGE plpgsql SET enable_seqscan = off
AS $$
DECLARE
    v_at timestamptz;
    v_id uuid;
    v_count int;
BEGIN
    SELECT m.created_at, m.id, count(*) OVER () INTO v_at, v_id, v_count
    FROM unnest(p_transaction_id) AS u (transaction_id)
    JOIN queen_bench_rows.messages AS m ON m.partition_id = p_partition AND m.transaction_id = u.transaction_id
    ORDER BY m.created_at DESC, m.id DESC
    LIMIT 1;
    UPDATE queen_bench_rows.partition_consumers AS c
    SET consumed_at = v_at, consumed_id = v_id, acked_count = c.acked_count + v_count,
        lease = CASE WHEN c.acked_count + v_count < c.batch_size THEN c.lease END, updated_at = now()
    WHERE c.partition_id = p_partition AND c.consumer_group = p_group
        AND c.lease = p_lease AND c.lease_expires_at > now() AND (v_at, v_id) > (c.consumed_at, c.consumed_id);
    RETURN FOUND;
END $$;

-- The same pop and ack with what the original is described to do at each delivery: JSON both ways, a result a message, and a
-- row a message in a log of what was consumed.
CREATE TABLE messages_consumed (
    partition_id uuid NOT NULL,
    consumer_group text NOT NULL,
    message_id uuid NOT NULL,
    consumed_at timestamptz NOT NULL DEFAULT now()
);

CREATE FUNCTION pop_json(p_queue text, p_group text, p_lease uuid, p_batch int, p_seconds int) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off
AS $$
BEGIN
    RETURN (
        SELECT jsonb_agg(jsonb_build_object(
            'id', m.id, 'transactionId', m.transaction_id, 'partitionId', m.partition_id, 'leaseId', p_lease,
            'consumerGroup', p_group, 'data', m.payload, 'traceId', m.trace_id, 'createdAt', m.created_at))
        FROM queen_bench_rows.pop(p_queue, p_group, p_lease, p_batch, p_seconds) AS m
    );
END $$;

-- Completes a JSON array of {partitionId, consumerGroup, leaseId, transactionId}; returns a result each.
CREATE FUNCTION ack_json(p_items jsonb) RETURNS jsonb
LANGUAGE plpgsql SET enable_seqscan = off
AS $$
DECLARE
    v_cursor record;
    v_done bool;
    v_results jsonb := '[]';
BEGIN
    FOR v_cursor IN
        SELECT
            i."partitionId" AS partition_id, i."consumerGroup" AS consumer_group, i."leaseId" AS lease,
            array_agg(i."transactionId") AS transaction_ids
        FROM jsonb_to_recordset(p_items)
            AS i ("partitionId" uuid, "consumerGroup" text, "leaseId" uuid, "transactionId" text)
        GROUP BY 1, 2, 3 ORDER BY 1, 2
    LOOP
        v_done := queen_bench_rows.ack(
            v_cursor.partition_id, v_cursor.consumer_group, v_cursor.lease, v_cursor.transaction_ids);
        INSERT INTO queen_bench_rows.messages_consumed (partition_id, consumer_group, message_id)
        SELECT m.partition_id, v_cursor.consumer_group, m.id FROM queen_bench_rows.messages AS m
        WHERE m.partition_id = v_cursor.partition_id AND m.transaction_id = ANY(v_cursor.transaction_ids);
        v_results := v_results || (
            SELECT jsonb_agg(jsonb_build_object('transactionId', u.id, 'success', v_done))
            FROM unnest(v_cursor.transaction_ids) AS u (id)
        );
    END LOOP;
    RETURN v_results;
END $$;
