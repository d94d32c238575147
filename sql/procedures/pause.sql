-- Purpose:   pauses or resumes a queue, or a group of it. What is paused delivers nothing; all else goes on.
-- Arguments: p_group   null: the queue, with all its groups
--            p_paused  false: resume
-- Returns:   known: whether there is such a queue, or group; ready: how many cursors a pop may claim now, at most 1,000,
--            so that as many long polls are woken.
-- Locks:     the queue's row or the group's.
-- Writes:    queues or consumer_groups_metadata.
CREATE OR REPLACE FUNCTION queen.pause_v1(p_queue text, p_group text, p_paused bool, OUT known bool, OUT ready int)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue bigint := (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue);
    v_now timestamptz := queen.clock();
BEGIN
    IF p_group IS NULL THEN
        UPDATE queen.queues AS q SET paused = p_paused WHERE q.id = v_queue;
    ELSE
        UPDATE queen.consumer_groups_metadata AS g SET paused = p_paused
        WHERE g.queue_id = v_queue AND g.name = p_group AND g.subscribed_upto >= 0;
    END IF;
    known := FOUND;
    ready := 0;
    IF known AND NOT p_paused THEN
        SELECT count(*) INTO ready
        FROM (
            SELECT 1
            FROM queen.consumer_groups_metadata AS g
            CROSS JOIN LATERAL (
                SELECT 1 FROM queen.partition_consumers AS c
                WHERE c.grp_id = g.id AND c.ready_at BETWEEN queen.low_water(g.id, v_now) AND v_now LIMIT 1000
            ) AS c
            WHERE g.queue_id = v_queue AND (p_group IS NULL OR g.name = p_group)
            LIMIT 1000
        ) AS c;
    END IF;
END $$;
COMMENT ON FUNCTION queen.pause_v1 IS 'Pauses or resumes the delivery of a queue, or of a group of it.';
