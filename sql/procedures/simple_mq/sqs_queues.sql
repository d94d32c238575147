-- Returns:   whether this database has a queue of the group: that of the name, or one whose name goes on with --.
CREATE OR REPLACE FUNCTION simple_mq.sqs_has_group_v1(p_group text) RETURNS bool
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
DECLARE
    v_fifo CONSTANT bool := p_group LIKE '%.fifo';
    v_others CONSTANT text := CASE WHEN v_fifo THEN left(p_group, -5) ELSE p_group END || '--';
BEGIN
    -- As in sqs_list_queues_v1: names are ASCII.
    RETURN EXISTS (SELECT 1 FROM simple_mq.sqs_queues AS q WHERE q.queue_name = p_group) OR EXISTS (
        SELECT 1 FROM simple_mq.sqs_queues AS q
        WHERE q.queue_name >= v_others AND q.queue_name <= v_others || '~' AND q.fifo = v_fifo
    );
END $$;
COMMENT ON FUNCTION simple_mq.sqs_has_group_v1 IS
'Whether queues of SQS are here whose names are equal up to --.';

-- Purpose:   creates a queue of SQS, unless there is one of the name.
-- Returns:   the queue of the name, and whether this call has created it: p_queue, the id that the caller has chosen,
--            is the queue's then, also when the call is sent again.
-- Errors:    QN006: the queue belongs to another shard (ADR 68). Queues whose names are equal up to -- are together.
-- Writes:    sqs_queues, counts, heads.
CREATE OR REPLACE FUNCTION simple_mq.sqs_create_queue_v1(
    p_queue uuid, p_name text, p_fifo bool, p_attributes jsonb, p_tags jsonb
) RETURNS SETOF simple_mq.sqs_queues
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_now timestamptz := queen.clock();
    v_group CONSTANT text := split_part(p_name, '--', 1)
        || CASE WHEN strpos(p_name, '--') > 0 AND p_name LIKE '%.fifo' THEN '.fifo' ELSE '' END;
BEGIN
    IF NOT simple_mq.sqs_has_group_v1(v_group) AND NOT queen.is_home('', v_group) THEN
        RAISE EXCEPTION 'the queue % belongs to another database', p_name USING ERRCODE = 'QN006';
    END IF;
    INSERT INTO simple_mq.sqs_queues (
        queue_id, store_id, queue_name, fifo, attributes, tags, created_at, modified_at
    )
    VALUES (p_queue, p_queue, p_name, p_fifo, p_attributes, p_tags, v_now, v_now) ON CONFLICT DO NOTHING;
    IF FOUND THEN
        PERFORM simple_mq.open_counts(p_queue);
    END IF;
    RETURN QUERY SELECT q.* FROM simple_mq.sqs_queues AS q WHERE q.queue_name = p_name;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_create_queue_v1 IS 'Creates a queue of SQS.';

-- Returns:   the queue; no row when there is none of the name.
CREATE OR REPLACE FUNCTION simple_mq.sqs_find_queue_v1(p_name text) RETURNS SETOF simple_mq.sqs_queues
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
BEGIN
    RETURN QUERY SELECT q.* FROM simple_mq.sqs_queues AS q WHERE q.queue_name = p_name;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_find_queue_v1 IS 'A queue of SQS by its name.';

-- Returns:   the names of queues, of those that there are.
CREATE OR REPLACE FUNCTION simple_mq.sqs_names_v1(p_queues uuid[]) RETURNS TABLE (queue_id uuid, queue_name text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT q.queue_id, q.queue_name FROM simple_mq.sqs_queues AS q WHERE q.queue_id = ANY(p_queues);
END $$;
COMMENT ON FUNCTION simple_mq.sqs_names_v1 IS 'The names of queues of SQS.';

-- Returns:   the names of queues, sorted, at most p_limit.
-- Arguments: p_prefix: what they begin with; p_after: the name behind which to go on (empty: from the beginning).
CREATE OR REPLACE FUNCTION simple_mq.sqs_list_queues_v1(p_prefix text, p_after text, p_limit int)
RETURNS TABLE (queue_name text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    -- Names of queues are ASCII: no name of the prefix comes behind it and a tilde, and none begins with more.
    RETURN QUERY SELECT q.queue_name FROM simple_mq.sqs_queues AS q
    WHERE q.queue_name > p_after AND q.queue_name >= p_prefix AND q.queue_name <= p_prefix || '~'
    ORDER BY q.queue_name LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_list_queues_v1 IS 'A page of the names of queues of SQS.';

-- Returns:   the names of queues whose dead letters go to the queue, as for sqs_list_queues_v1.
CREATE OR REPLACE FUNCTION simple_mq.sqs_list_sources_v1(p_queue uuid, p_after text, p_limit int)
RETURNS TABLE (queue_name text)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_name text := (SELECT d.queue_name FROM simple_mq.sqs_queues AS d WHERE d.queue_id = p_queue);
BEGIN
    RETURN QUERY SELECT q.queue_name FROM simple_mq.sqs_queues AS q
    WHERE q.dlq_name = v_name AND q.queue_name > p_after ORDER BY q.queue_name LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_list_sources_v1 IS 'A page of the names of queues that have a dead-letter queue.';

-- Purpose:   sets attributes, and leaves the others; an empty value removes one.
-- Returns:   whether there is such a queue.
CREATE OR REPLACE FUNCTION simple_mq.sqs_set_attributes_v1(p_queue uuid, p_attributes jsonb) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    UPDATE simple_mq.sqs_queues AS q
    SET
        attributes = (q.attributes || p_attributes)
            - ARRAY(SELECT e.key FROM jsonb_each_text(p_attributes) AS e WHERE e.value = ''),
        modified_at = queen.clock()
    WHERE q.queue_id = p_queue;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_set_attributes_v1 IS 'Sets attributes of a queue of SQS.';

-- Purpose:   sets tags, and removes those of p_removed.
-- Returns:   whether there is such a queue.
CREATE OR REPLACE FUNCTION simple_mq.sqs_tag_v1(p_queue uuid, p_tags jsonb, p_removed text[]) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    UPDATE simple_mq.sqs_queues AS q SET tags = (q.tags - p_removed) || p_tags WHERE q.queue_id = p_queue;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_tag_v1 IS 'Changes the tags of a queue of SQS.';

-- Returns:   messages that are visible, in flight and delayed; no row when there is no such queue. They are counted,
--            not looked for: only of the messages whose timeout or delay has just ended there is a look at the first
--            1000; more of them are still shown as in flight or delayed until a receive or the sweep has been there.
CREATE OR REPLACE FUNCTION simple_mq.sqs_figures_v1(p_queue uuid)
RETURNS TABLE (visible bigint, in_flight bigint, delayed bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_queue simple_mq.sqs_queues;
    v_ended bigint;
    v_begun bigint;
BEGIN
    SELECT q.* INTO v_queue FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_queue;
    SELECT count(*) INTO v_ended FROM (
        SELECT 1 FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue.store_id AND m.state = 't' AND m.visible_at <= v_now LIMIT 1000
    ) AS t;
    SELECT count(*) INTO v_begun FROM (
        SELECT 1 FROM simple_mq.messages AS m
        WHERE m.queue_id = v_queue.store_id AND m.state = 'd'
            AND m.visible_at <= simple_mq.sqs_due_from(v_queue, v_now) LIMIT 1000
    ) AS d;
    RETURN QUERY
    SELECT
        (sum(c.messages) - sum(c.in_flight) - sum(c.delayed))::bigint + v_ended + v_begun,
        sum(c.in_flight)::bigint - v_ended, sum(c.delayed)::bigint - v_begun
    FROM simple_mq.counts AS c WHERE c.queue_id = v_queue.store_id HAVING count(*) > 0;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_figures_v1 IS 'How many messages a queue of SQS has.';

-- Takes the store of a queue away: after the commit its messages are invisible. simple_mq.purge_v1 removes their rows.
CREATE OR REPLACE FUNCTION simple_mq.sqs_drop_store(p_store uuid) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    PERFORM 1 FROM simple_mq.counts AS c WHERE c.queue_id = p_store ORDER BY c.shard FOR UPDATE;
    DELETE FROM simple_mq.counts AS c WHERE c.queue_id = p_store;
    DELETE FROM simple_mq.heads AS h WHERE h.queue_id = p_store;
    INSERT INTO simple_mq.deleted_queues (queue_id) VALUES (p_store) ON CONFLICT DO NOTHING;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_drop_store IS 'Internal: takes all messages of a queue away.';

-- Purpose:   deletes a queue of SQS with its messages; the name is free at once.
-- Returns:   whether there was one.
-- Locks:     its row, then its counts: sends, dead letters and moves that are under way end before.
CREATE OR REPLACE FUNCTION simple_mq.sqs_delete_queue_v1(p_queue uuid) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_store uuid;
BEGIN
    DELETE FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_queue RETURNING q.store_id INTO v_store;
    IF v_store IS NULL THEN
        RETURN false;
    END IF;
    PERFORM simple_mq.sqs_drop_store(v_store);
    DELETE FROM simple_mq.outcomes AS o WHERE o.queue_id = p_queue;
    DELETE FROM simple_mq.sqs_moves AS v WHERE v.source_id = p_queue;
    RETURN true;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_delete_queue_v1 IS 'Deletes a queue of SQS.';

-- Purpose:   takes all messages of a queue away, and what it remembers of their sends and receives, by giving it another
--            store.
-- Arguments: p_store: the new one, which the caller has chosen; p_pause: seconds before the next purge.
-- Returns:   purged, also when the call is sent again; too_soon; or unknown.
-- Locks:     as simple_mq.sqs_delete_queue_v1.
CREATE OR REPLACE FUNCTION simple_mq.sqs_purge_queue_v1(p_queue uuid, p_store uuid, p_pause int) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_queue simple_mq.sqs_queues;
BEGIN
    SELECT q.* INTO v_queue FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_queue FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 'unknown';
    ELSIF v_queue.store_id = p_store THEN
        RETURN 'purged';
    ELSIF v_queue.purged_at > queen.clock() - make_interval(secs => p_pause) THEN
        RETURN 'too_soon';
    END IF;
    UPDATE simple_mq.sqs_queues AS q SET store_id = p_store, purged_at = queen.clock() WHERE q.queue_id = p_queue;
    PERFORM simple_mq.sqs_drop_store(v_queue.store_id);
    PERFORM simple_mq.open_counts(p_store);
    RETURN 'purged';
END $$;
COMMENT ON FUNCTION simple_mq.sqs_purge_queue_v1 IS 'Removes all messages of a queue of SQS.';
