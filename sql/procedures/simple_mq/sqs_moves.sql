-- Purpose:   starts a message move task; simple_mq.sqs_move_v1 carries it out.
-- Arguments: p_move: its id, which the caller has chosen; p_destination: null: each message goes back to where it comes
--            from; p_per_s: most messages a second (null: no limit).
-- Returns:   started, also when the call is sent again; running: another task of this source is; unknown: the source, or
--            the destination.
CREATE OR REPLACE FUNCTION simple_mq.sqs_start_move_v1(
    p_move uuid, p_source uuid, p_destination uuid, p_per_s int
) RETURNS text
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_now timestamptz;
    v_source simple_mq.sqs_queues;
BEGIN
    IF EXISTS (SELECT 1 FROM simple_mq.sqs_moves AS v WHERE v.move_id = p_move) THEN
        RETURN 'started';
    END IF;
    SELECT q.* INTO v_source FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_source FOR KEY SHARE;
    IF NOT FOUND OR (
        p_destination IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM simple_mq.sqs_queues AS q WHERE q.queue_id = p_destination AND q.fifo = v_source.fifo
        )
    ) THEN
        RETURN 'unknown';
    END IF;
    -- Later messages of the source, also those that come back to it, have a later time.
    v_now := simple_mq.sqs_lock_counts(ARRAY[v_source.store_id]);
    INSERT INTO simple_mq.sqs_moves (
        move_id, source_id, destination_id, per_s, status, started_at, stepped_at, to_move
    )
    SELECT p_move, p_source, p_destination, p_per_s, 'RUNNING', v_now, v_now - interval '1 second', f.visible
    FROM simple_mq.sqs_figures_v1(p_source) AS f
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'running';
    END IF;
    -- The latest ten are kept.
    DELETE FROM simple_mq.sqs_moves AS v WHERE v.move_id IN (
        SELECT o.move_id FROM simple_mq.sqs_moves AS o WHERE o.source_id = p_source
        ORDER BY o.started_at DESC, o.move_id OFFSET 10
    );
    RETURN 'started';
END $$;
COMMENT ON FUNCTION simple_mq.sqs_start_move_v1 IS 'Starts a message move task.';

-- Returns:   the latest tasks of a source, at most p_limit, newest first.
CREATE OR REPLACE FUNCTION simple_mq.sqs_list_moves_v1(p_source uuid, p_limit int) RETURNS SETOF simple_mq.sqs_moves
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN QUERY SELECT v.* FROM simple_mq.sqs_moves AS v
    WHERE v.source_id = p_source ORDER BY v.started_at DESC, v.move_id LIMIT p_limit;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_list_moves_v1 IS 'Message move tasks of a queue.';

-- Purpose:   ends a task that is running; what it has moved stays where it is.
-- Returns:   whether it was running; how many messages it has moved. No row: there is no such task.
CREATE OR REPLACE FUNCTION simple_mq.sqs_cancel_move_v1(p_move uuid) RETURNS TABLE (cancelled bool, moved bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_move simple_mq.sqs_moves;
BEGIN
    SELECT v.* INTO v_move FROM simple_mq.sqs_moves AS v WHERE v.move_id = p_move FOR UPDATE;
    IF FOUND THEN
        UPDATE simple_mq.sqs_moves AS v SET status = 'CANCELLED' WHERE v.move_id = p_move AND v.status = 'RUNNING';
        RETURN QUERY SELECT v_move.status IN ('RUNNING', 'CANCELLED'), v_move.moved;
    END IF;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_cancel_move_v1 IS 'Cancels a message move task.';

-- Purpose:   one step of the running task that has waited longest, at most p_step messages and no more than its rate
--            allows since its last step.
-- Arguments: p_routes: if something has become visible in its source, only does what that takes (simple_mq.sqs_route);
--            the next step moves it. A caller that alternates gives each task its turn, also one in whose source
--            timeouts end all the time.
-- Returns:   the queues that got messages; no row: no task can go on now.
-- Locks:     the task with SKIP LOCKED, the rows of the queues FOR KEY SHARE, those of simple_mq.sqs_move_to.
CREATE OR REPLACE FUNCTION simple_mq.sqs_move_v1(p_step int, p_routes bool)
RETURNS TABLE (moved int, destinations uuid[])
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := queen.clock();
    v_move simple_mq.sqs_moves;
    v_source simple_mq.sqs_queues;
    v_most int;
    v_messages uuid[];
    v_groups text[];
    v_destinations uuid[];
    v_failure text;
    v_due bool;
BEGIN
    SELECT v.* INTO v_move FROM simple_mq.sqs_moves AS v
    WHERE v.status = 'RUNNING' AND (
        v.per_s IS NULL OR v.per_s * extract(EPOCH FROM v_now - v.stepped_at) >= 1
    )
    ORDER BY v.stepped_at LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_most := least(p_step, floor(v_move.per_s * least(extract(EPOCH FROM v_now - v_move.stepped_at), 1)));
    SELECT q.* INTO v_source FROM simple_mq.sqs_queues AS q WHERE q.queue_id = v_move.source_id FOR KEY SHARE;
    -- What has just become visible is moved by the next step: its locks come before those of this one.
    v_due := EXISTS (
        SELECT 1 FROM simple_mq.messages AS m
        WHERE m.queue_id = v_source.store_id AND m.state = 't' AND m.visible_at <= v_now
    ) OR EXISTS (
        SELECT 1 FROM simple_mq.messages AS m
        WHERE m.queue_id = v_source.store_id AND m.state = 'd'
            AND m.visible_at <= simple_mq.sqs_due_from(v_source, v_now)
    );
    IF v_due AND p_routes THEN
        PERFORM simple_mq.sqs_route_all(ARRAY[v_source.queue_id]);
        moved := 0;
        destinations := '{}';
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT array_agg(m.message_id), array_agg(m.message_group), array_agg(coalesce(v_move.destination_id, m.source_id))
    INTO v_messages, v_groups, v_destinations
    FROM simple_mq.sqs_movable(v_source, simple_mq.uuid_at(v_move.started_at, '0000000000000000'), v_most) AS m;
    PERFORM 1 FROM simple_mq.sqs_queues AS q WHERE q.queue_id = ANY(v_destinations) ORDER BY q.queue_id FOR KEY SHARE;
    -- What cannot go back stays, and ends the task.
    v_failure := CASE
        WHEN array_position(v_destinations, NULL) IS NOT NULL THEN 'CouldNotDetermineMessageSource'
        WHEN EXISTS (
            SELECT 1 FROM unnest(v_destinations) AS d (queue_id)
            LEFT JOIN simple_mq.sqs_queues AS q ON q.queue_id = d.queue_id WHERE q.queue_id IS NULL
        ) THEN 'AWS.SimpleQueueService.NonExistentQueue'
    END;
    moved := coalesce(simple_mq.sqs_move_to(v_source, v_messages, v_groups, v_destinations), 0);
    UPDATE simple_mq.sqs_moves AS v
    SET
        moved = v.moved + coalesce(sqs_move_v1.moved, 0), stepped_at = v_now, failure = v_failure,
        status = CASE
            WHEN v_failure IS NOT NULL THEN 'FAILED'
            WHEN v_messages IS NULL AND NOT v_due THEN 'COMPLETED'
            ELSE 'RUNNING'
        END
    WHERE v.move_id = v_move.move_id;
    destinations := ARRAY(SELECT DISTINCT d FROM unnest(v_destinations) AS d WHERE d IS NOT NULL);
    RETURN NEXT;
END $$;
COMMENT ON FUNCTION simple_mq.sqs_move_v1 IS 'A step of a message move task.';
