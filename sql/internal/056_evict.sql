-- What queen.evict_overdue_v1 does with one partition. It sets how the statements are planned.

-- Gives up what is overdue in a partition, cursor by cursor, until portion is 0 (see queen.portion, which makes portion
-- of began and evicted). p_older: what is stored before is overdue; p_waiting: groups that begin later.
CREATE OR REPLACE FUNCTION queen.evict_from_partition(
    p_queue queen.queues, p_part bigint, p_older timestamptz, p_waiting bigint[], p_messages int, p_wait bool,
    p_now timestamptz,
    OUT messages bigint, OUT state text, INOUT began timestamptz, INOUT evicted bigint, INOUT portion int
)
LANGUAGE plpgsql
AS $$
DECLARE
    v_upto bigint;                 -- the last offset of the partition that is overdue
    v_cursor record;
    v_page refcursor;
    v_given_up record;
    v_now timestamptz;
BEGIN
    messages := 0;
    v_upto := queen.last_before(p_part, p_older - interval '1 microsecond');
    -- Only cursors that have something to give up, so that each call makes progress.
    IF p_wait THEN
        OPEN v_page FOR
            SELECT c.grp_id FROM queen.partition_consumers AS c
            WHERE c.part_id = p_part AND c.acked < v_upto AND queen.keeps_upto(c, p_now) < v_upto
                AND c.grp_id <> ALL(p_waiting)
            ORDER BY c.grp_id FOR UPDATE;
    ELSE
        OPEN v_page FOR
            SELECT c.grp_id FROM queen.partition_consumers AS c
            WHERE c.part_id = p_part AND c.acked < v_upto AND queen.keeps_upto(c, p_now) < v_upto
                AND c.grp_id <> ALL(p_waiting)
            ORDER BY c.grp_id FOR UPDATE SKIP LOCKED;
    END IF;
    LOOP
        FETCH v_page INTO v_cursor;
        EXIT WHEN NOT FOUND;
        began := coalesce(began, clock_timestamp());
        -- Not before it has waited: it locks a tick, which low-water marks do not pass.
        v_now := coalesce(v_now, queen.write_clock());
        LOOP
            SELECT * INTO v_given_up
            FROM queen.give_up(p_queue, p_part, v_cursor.grp_id, v_upto, portion, v_now);
            messages := messages + v_given_up.messages;
            evicted := evicted + v_given_up.messages;
            portion := queen.portion(began, evicted, p_messages);
            EXIT WHEN portion <= 0 OR NOT v_given_up.more;
        END LOOP;
        EXIT WHEN portion <= 0;
    END LOOP;
    CLOSE v_page;
    state := CASE
        WHEN portion <= 0 THEN 'more'
        -- Messages that were skipped because their cursor was locked are still overdue.
        WHEN NOT p_wait AND EXISTS (
            SELECT 1 FROM queen.partition_consumers AS c
            WHERE c.part_id = p_part AND c.acked < v_upto AND queen.keeps_upto(c, p_now) < v_upto
                AND c.grp_id <> ALL(p_waiting)
        ) THEN 'busy'
        ELSE 'done'
    END;
END $$;
COMMENT ON FUNCTION queen.evict_from_partition IS 'Internal: evicts the overdue messages of a partition.';

-- The offset up to which a cursor gives nothing up, because all is done or under a live lease.
CREATE OR REPLACE FUNCTION queen.keeps_upto(p_cursor queen.partition_consumers, p_now timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_upto bigint := p_cursor.acked;
BEGIN
    IF p_cursor.lease IS NOT NULL AND p_cursor.ready_at > p_now THEN
        v_upto := greatest(v_upto, p_cursor.upto);
    END IF;
    IF p_cursor.ahead IS NOT NULL THEN
        SELECT a.acked INTO v_upto FROM queen.advance(v_upto, p_cursor.ahead) AS a;
    END IF;
    RETURN v_upto;
END $$;
COMMENT ON FUNCTION queen.keeps_upto IS 'Internal: the offset up to which a cursor evicts nothing.';

-- How many messages a transaction of eviction takes on next: 100 at first, then as many as all before, if an estimate
-- says that they fit into 6 ms, because consumers wait for their cursors. 0: the transaction ends.
CREATE OR REPLACE FUNCTION queen.portion(p_began timestamptz, p_done bigint, p_most int) RETURNS int
LANGUAGE sql VOLATILE
RETURN CASE
    WHEN clock_timestamp() - p_began > interval '3 ms' THEN 0
    ELSE least(p_most - p_done, greatest(p_done, 100))::int
END;
COMMENT ON FUNCTION queen.portion IS 'Internal: the number of messages for the next eviction transaction.';

-- The messages that one cursor gives up: the undone ones up to p_upto, without those under a live lease. The caller has
-- locked it.
CREATE OR REPLACE FUNCTION queen.give_up(
    p_queue queen.queues, p_part bigint, p_grp bigint, p_upto bigint, p_messages int, p_now timestamptz,
    OUT messages bigint, OUT more bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_cursor queen.partition_consumers;
    -- Read from the row once, not per message: both may be large.
    v_ahead int8multirange;
    v_retries jsonb;
    v_group text;
    v_from bigint;
    v_upto bigint;
    v_off bigint[];
BEGIN
    SELECT * INTO v_cursor FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    SELECT g.name INTO v_group FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp;
    v_ahead := coalesce(v_cursor.ahead, '{}') + '{}'::int8multirange;
    v_retries := coalesce(v_cursor.retries, '{}') || '{}'::jsonb;
    v_from := queen.keeps_upto(v_cursor, p_now);
    v_upto := least(p_upto, v_from + p_messages);
    more := v_upto < p_upto;
    v_off := ARRAY(SELECT o FROM generate_series(v_from + 1, v_upto) AS o WHERE NOT v_ahead @> o);
    messages := cardinality(v_off);
    IF messages = 0 THEN
        RETURN;
    END IF;
    IF coalesce(
        p_queue.dead_letter_queue OR p_queue.dlq_after_max_retries, p_queue.dead_letter_queue,
        p_queue.dlq_after_max_retries, true)
    THEN
        PERFORM queen.bury(
            p_queue.id, p_part, p_grp, v_group, v_off, array_fill('Maximum wait time exceeded'::text, ARRAY[messages::int]),
            ARRAY(SELECT coalesce((v_retries ->> o::text)::int, 0) FROM unnest(v_off) AS o), p_now);
    END IF;
    PERFORM queen.pass_over(p_part, p_grp, int8multirange(int8range(v_from + 1, v_upto, '[]')), p_now);
END $$;
COMMENT ON FUNCTION queen.give_up IS 'Internal: the messages that a cursor evicts because they have waited too long.';
