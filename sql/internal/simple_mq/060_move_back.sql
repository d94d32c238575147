-- Plans: ADR 38 says why = ANY(ARRAY[x]).

-- Moves messages of a queue, oldest first, as many as the destination has room for.
-- Returns:   how many of them were still there, and how many moved; size and message count of the destination, as they
--            were before (null: there is no such queue, and nothing moved).
-- Locks:     groups, messages by (queue_id, message_id), counts (shard 0 of the destination, then an own shard).
CREATE OR REPLACE FUNCTION simple_mq.move_back(
    p_source uuid, p_destination uuid, p_messages uuid[],
    OUT there int, OUT moved int, OUT queue_size int, OUT messages bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_groups text[];
    v_leaders uuid[] := '{}';
    v_ordered bool := EXISTS (
        SELECT 1 FROM simple_mq.queues AS q WHERE q.queue_id = p_destination AND q.parent_id IS NULL);
    v_here uuid[];
BEGIN
    moved := 0;
    SELECT array_agg(DISTINCT m.message_group) INTO v_groups
    FROM simple_mq.messages AS m
    WHERE m.queue_id = p_source AND m.message_id = ANY(p_messages) AND m.message_group IS NOT NULL;
    IF v_groups IS NOT NULL THEN
        PERFORM simple_mq.lock_groups(array_agg(q.queue_id), array_agg(g.name))
        FROM unnest(ARRAY[p_source, p_destination]) AS q (queue_id) CROSS JOIN unnest(v_groups) AS g (name);
    END IF;
    IF v_ordered THEN
        v_leaders := ARRAY(
            SELECT l.message_id
            FROM unnest(v_groups) AS g (name)
            CROSS JOIN LATERAL (
                SELECT m.message_id FROM simple_mq.messages AS m
                WHERE m.queue_id = p_destination AND m.message_group = g.name AND m.state IN ('w', 'r', 't') OFFSET 0
            ) AS l);
    END IF;
    SELECT coalesce(array_agg(l.message_id) FILTER (WHERE l.moves), '{}') INTO v_here
    FROM (
        SELECT m.message_id, u.moves
        FROM (
            SELECT DISTINCT ON (o.queue_id, o.message_id) o.queue_id, o.message_id, o.moves
            FROM (
                SELECT p_source AS queue_id, n AS message_id, true AS moves FROM unnest(p_messages) AS n
                UNION ALL
                SELECT p_destination, n, false FROM unnest(v_leaders) AS n
            ) AS o
            ORDER BY o.queue_id, o.message_id, o.moves DESC
        ) AS u
        CROSS JOIN LATERAL (
            SELECT l.message_id FROM simple_mq.messages AS l
            WHERE l.queue_id = u.queue_id AND l.message_id = u.message_id FOR UPDATE
        ) AS m
    ) AS l;
    there := cardinality(v_here);
    PERFORM 1 FROM simple_mq.counts AS c WHERE c.queue_id = p_destination AND c.shard = 0 FOR UPDATE;
    SELECT q.queue_size, simple_mq.message_count(p_destination) INTO queue_size, messages
    FROM simple_mq.queues AS q WHERE q.queue_id = p_destination;
    IF queue_size IS NULL THEN
        RETURN;
    END IF;
    IF p_source <> p_destination THEN
        v_here := ARRAY(SELECT n FROM unnest(v_here) AS n ORDER BY n LIMIT greatest(queue_size - messages, 0));
    END IF;
    moved := cardinality(v_here);
    UPDATE simple_mq.messages AS m
    SET
        queue_id = p_destination, delivery_count = 0, visible_at = queen.clock(),
        state = CASE WHEN v_ordered AND m.message_group IS NOT NULL THEN 'b' ELSE 'r' END
    FROM unnest(v_here) AS u (message_id)
    WHERE m.queue_id = p_source AND m.message_id = ANY(ARRAY[u.message_id]);
    -- The oldest message leads its group, unless another one is taken or exhausted.
    UPDATE simple_mq.messages AS m SET state = 'b'
    FROM unnest(v_leaders) AS u (message_id)
    JOIN simple_mq.queues AS q ON q.queue_id = p_destination
    WHERE m.queue_id = p_destination AND m.message_id = ANY(ARRAY[u.message_id])
        AND (
            m.state IN ('w', 'r')
            OR (m.state = 't' AND m.visible_at <= queen.clock() AND m.delivery_count < q.max_deliveries)
        );
    IF v_groups IS NOT NULL THEN
        PERFORM simple_mq.promote(array_agg(q.queue_id), array_agg(g.name))
        FROM unnest(ARRAY[p_source, p_destination]) AS q (queue_id) CROSS JOIN unnest(v_groups) AS g (name);
    END IF;
    IF p_source <> p_destination AND moved > 0 THEN
        UPDATE simple_mq.counts AS c SET messages = c.messages + moved WHERE c.queue_id = p_destination AND c.shard = 0;
        PERFORM simple_mq.removed(array_fill(p_source, ARRAY[moved]));
    END IF;
END $$;
COMMENT ON FUNCTION simple_mq.move_back IS
    'Internal: requeues messages with delivery count 0, visible now, as many as fit.';
