-- Purpose:   puts cursors of a group somewhere: p_step partitions a call, so that it never locks all of them at once.
-- Arguments: p_queue, p_group; p_partition: only that one (null: all of the queue)
--            p_to_end   after the newest message; else after the newest not younger than p_since (null: before the oldest)
--            p_after    the partition where the last call has ended; 0 at first
-- Returns:   updated cursors; last: call again with it as p_after (null: done); moved_to: when the message was pushed
--            that the last cursor stands at (null: it stands before all).
-- Locks:     the queue against deletion, the group, then partitions in part_id order, then cursors in part_id order.
-- Writes:    partition_consumers, consumer_groups_metadata.
CREATE OR REPLACE FUNCTION queen.seek_group_v1(
    p_queue text, p_group text, p_partition text, p_to_end bool, p_since timestamptz, p_after bigint, p_step int,
    OUT updated int, OUT last bigint, OUT moved_to timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_queue bigint;
    v_grp bigint;
    v_parts bigint[];
BEGIN
    updated := 0;
    SELECT q.id INTO v_queue FROM queen.queues AS q WHERE q.name = p_queue FOR KEY SHARE;
    SELECT g.id INTO v_grp FROM queen.consumer_groups_metadata AS g
    WHERE g.queue_id = v_queue AND g.name = p_group FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    WHILE queen.make_cursors(v_grp, p_step) < 9223372036854775807 LOOP END LOOP;
    PERFORM queen.begin_group(v_grp);
    SELECT array_agg(u.id ORDER BY u.id) INTO v_parts
    FROM (
        SELECT p.id FROM queen.partitions AS p
        WHERE p.queue_id = v_queue AND (p_partition IS NULL OR p.name = p_partition) AND p.id > p_after
        ORDER BY p.id LIMIT p_step
    ) AS u;
    SELECT r.updated, r.moved_to INTO updated, moved_to FROM queen.put_cursors(v_grp, v_parts, p_to_end, p_since) AS r;
    last := CASE WHEN cardinality(v_parts) = p_step THEN v_parts[p_step] END;
END $$;
COMMENT ON FUNCTION queen.seek_group_v1 IS 'Puts cursors of a group somewhere, some partitions at a time.';

-- Puts cursors of a group: their leases end, and what they knew of deliveries and failures is forgotten.
CREATE OR REPLACE FUNCTION queen.put_cursors(
    p_grp bigint, p_part bigint[], p_to_end bool, p_since timestamptz, OUT updated int, OUT moved_to timestamptz
)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
DECLARE
    v_last bigint := p_part[cardinality(p_part)];
    v_now timestamptz := queen.write_clock();
BEGIN
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = ANY(p_part) ORDER BY h.part_id FOR UPDATE;
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.part_id = ANY(p_part) AND c.grp_id = p_grp ORDER BY c.part_id FOR UPDATE;
    WITH put AS (
        UPDATE queen.partition_consumers AS c
        SET
            acked = a.acked, ahead = a.ahead, lease = NULL, upto = a.acked, seen = a.acked, attempts = 0, retries = NULL, retry_at = NULL, ver = c.ver + 1,
            ready_at = CASE WHEN a.undone > 0 THEN v_now ELSE 'infinity' END
        FROM (
            SELECT h.part_id, u.acked, u.ahead,
                h.next_off - 1 - u.acked - coalesce(queen.range_size(u.ahead), 0) AS undone
            FROM queen.log_ends AS h
            CROSS JOIN LATERAL queen.cursor_after(
                h.part_id,
                CASE WHEN p_to_end THEN h.next_off - 1
                    ELSE queen.last_before(h.part_id, coalesce(p_since, '-infinity')) END
            ) AS u
            WHERE h.part_id = ANY(p_part)
        ) AS a
        WHERE c.part_id = a.part_id AND c.grp_id = p_grp
        RETURNING 1
    )
    SELECT count(*) INTO updated FROM put;
    SELECT s.created_at INTO moved_to
    FROM queen.partition_consumers AS c
    JOIN queen.segments AS s ON s.part_id = c.part_id AND s.last_off >= c.acked AND s.last_off - s.n < c.acked
    WHERE c.part_id = v_last AND c.grp_id = p_grp ORDER BY s.last_off LIMIT 1;
END $$;
COMMENT ON FUNCTION queen.put_cursors IS 'Internal: puts cursors of a group.';

-- A group whose start lies ahead begins now, or has begun at its start if that is over.
CREATE OR REPLACE FUNCTION queen.begin_group(p_grp bigint) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM queen.skip_to(p_grp, least(g.starts_at, queen.clock())) FROM queen.consumer_groups_metadata AS g
    WHERE g.id = p_grp AND g.starts_at IS NOT NULL;
END $$;
COMMENT ON FUNCTION queen.begin_group IS 'Internal: ends the wait of a group for its start.';
