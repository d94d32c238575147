-- Purpose:   moves cursors of a group: p_step partitions per call, so that it never locks all of them at once. If the
--            group lacks cursors, or still waits for its start, these come first, as many per call.
-- Arguments: p_queue, p_group; p_partition: only that one (null: all of the queue)
--            p_to_end   after the newest message; else after the newest not younger than p_since (null: before the oldest)
--            p_after    the partition where the last call has ended; 0 at first
-- Returns:   updated cursors; last: call again with it as p_after (null: done); moved_to: when the message was pushed
--            that the last cursor stands at (null: it stands before all).
-- Locks:     the queue against deletion, the group, then partitions in part_id order, the size of the queue, then
--            cursors in part_id order.
-- Writes:    partition_consumers, consumer_groups_metadata, queue_sizes.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]), queue_id + 0.
CREATE OR REPLACE FUNCTION queen.seek_group_v1(
    p_queue text, p_group text, p_partition text, p_to_end bool, p_since timestamptz, p_after bigint, p_step int,
    OUT updated int, OUT last bigint, OUT moved_to timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue bigint;
    v_grp bigint;
    v_parts bigint[];
BEGIN
    updated := 0;
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR KEY SHARE;
    SELECT g.id INTO v_grp FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.name = p_group AND g.subscribed_upto >= 0 FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF queen.prepare_group(v_grp, p_step) THEN
        last := p_after;
        RETURN;
    END IF;
    IF p_partition IS NULL THEN
        SELECT array_agg(u.id) INTO v_parts
        FROM (
            SELECT p.id FROM queen.partitions AS p
            WHERE p.queue_id + 0 = v_queue AND p.id + 0 > p_after ORDER BY p.id + 0 LIMIT p_step
        ) AS u;
    ELSE
        SELECT array_agg(p.id) INTO v_parts FROM queen.partitions AS p WHERE p.queue_id = v_queue AND p.name = p_partition;
    END IF;
    SELECT r.updated, r.moved_to INTO updated, moved_to
    FROM queen.put_cursors(v_grp, v_parts, CASE WHEN p_to_end THEN 'infinity' ELSE coalesce(p_since, '-infinity') END) AS r;
    last := CASE WHEN p_partition IS NULL THEN v_parts[p_step] END;
END $$;
COMMENT ON FUNCTION queen.seek_group_v1 IS 'Moves cursors of a group, some partitions at a time.';

-- Ends the wait of a group for its start, and makes a page of the cursors that it has not yet; false: there was nothing
-- to do.
CREATE OR REPLACE FUNCTION queen.prepare_group(p_grp bigint, p_step int) RETURNS bool
LANGUAGE plpgsql
AS $$
DECLARE
    v_group queen.consumer_groups_metadata := queen.begin_group(p_grp);
BEGIN
    IF v_group.subscribed_upto = 9223372036854775807 THEN
        RETURN false;
    END IF;
    PERFORM queen.begin_page(p_grp, p_step);
    RETURN true;
END $$;
COMMENT ON FUNCTION queen.prepare_group IS 'Internal: creates the missing cursors of a group before a seek.';

-- Moves cursors of a group behind the messages created at or before a time. Their leases end, and their counts of
-- deliveries and failures are reset. Partitions ascending.
CREATE OR REPLACE FUNCTION queen.put_cursors(
    p_grp bigint, p_part bigint[], p_since timestamptz, OUT updated int, OUT moved_to timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_last bigint := p_part[cardinality(p_part)];
    v_acked bigint;
    v_now timestamptz := queen.write_clock();
BEGIN
    updated := 0;
    IF p_part IS NULL THEN
        RETURN;
    END IF;
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = ANY(p_part) ORDER BY h.part_id FOR UPDATE;
    PERFORM queen.forget_size(g.queue_id) FROM queen.consumer_groups_metadata AS g WHERE g.id = p_grp;
    PERFORM queen.lock_cursors(NULL, p_part, array_fill(p_grp, ARRAY[cardinality(p_part)]));
    UPDATE queen.partition_consumers AS c
    SET
        acked = a.acked, ahead = a.ahead, lease = NULL, upto = a.acked, seen = a.acked, attempts = 0, retries = NULL,
        retry_at = NULL, ver = c.ver + 1, ready_at = CASE WHEN a.acked < a.last THEN v_now ELSE 'infinity' END
    FROM (
        SELECT s.part_id, p_grp AS grp_id, l.ver, s.acked, s.ahead, s.last
        FROM queen.places(p_part, p_since) AS s
        CROSS JOIN LATERAL (
            SELECT o.ver FROM queen.partition_consumers AS o
            WHERE o.part_id = s.part_id AND o.grp_id = p_grp ORDER BY o.ver DESC LIMIT 1
        ) AS l
        OFFSET 0  -- the version first: not all of them
    ) AS a
    WHERE c.part_id = ANY(ARRAY[a.part_id]) AND c.grp_id = a.grp_id AND c.ver = a.ver;
    GET DIAGNOSTICS updated = ROW_COUNT;
    SELECT c.acked INTO v_acked FROM queen.partition_consumers AS c
    WHERE c.part_id = v_last AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    SELECT CASE WHEN s.last_off - s.n < v_acked THEN s.created_at END INTO moved_to
    FROM queen.segments AS s WHERE s.part_id = v_last AND s.last_off >= v_acked ORDER BY s.last_off LIMIT 1;
END $$;
COMMENT ON FUNCTION queen.put_cursors IS 'Internal: moves cursors of a group.';
