-- The position of a cursor whose group has done everything up to an offset: deleted messages above that are done, too.
CREATE OR REPLACE FUNCTION queen.cursor_after(p_part bigint, p_off bigint, OUT acked bigint, OUT ahead int8multirange)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_deleted int8multirange;
BEGIN
    acked := p_off;
    SELECT d.offsets * int8multirange(int8range(p_off + 1, NULL)) INTO v_deleted
    FROM queen.deleted_messages AS d WHERE d.part_id = p_part;
    IF v_deleted <> '{}' THEN
        SELECT a.acked, a.ahead INTO acked, ahead FROM queen.advance(p_off, v_deleted) AS a;
    END IF;
END $$;
COMMENT ON FUNCTION queen.cursor_after IS 'Internal: acked and ahead of a cursor that is moved to an offset.';

-- The positions of cursors whose group has done what was created at or before a time (infinity: everything), and the
-- last offset of each partition. It reads both ends of a partition, and more only if the position lies between them.
-- The caller has locked the partitions.
CREATE OR REPLACE FUNCTION queen.places(p_part bigint[], p_since timestamptz)
RETURNS TABLE (part_id bigint, acked bigint, ahead int8multirange, last bigint)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT u.part_id, coalesce(a.acked, p.off), a.ahead, coalesce(newest.last_off, -1)
    FROM unnest(p_part) AS u (part_id)
    LEFT JOIN LATERAL (
        SELECT s.last_off, s.last_off - s.n AS off, s.created_at FROM queen.segments AS s
        WHERE s.part_id = u.part_id ORDER BY s.last_off DESC LIMIT 1
    ) AS newest ON true
    LEFT JOIN LATERAL (
        SELECT s.last_off, s.last_off - s.n AS off, s.created_at FROM queen.segments AS s
        WHERE s.part_id = u.part_id AND newest.created_at > p_since ORDER BY s.last_off LIMIT 1
    ) AS oldest ON true
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN newest.created_at > p_since AND oldest.created_at > p_since THEN oldest.off
            WHEN newest.created_at > p_since AND newest.off = oldest.last_off THEN newest.off
            WHEN newest.created_at > p_since THEN queen.last_before(u.part_id, p_since)
            ELSE coalesce(newest.last_off, -1)
        END AS off
        OFFSET 0
    ) AS p
    LEFT JOIN LATERAL (
        SELECT c.acked, c.ahead FROM queen.cursor_after(u.part_id, p.off) AS c
        WHERE (SELECT d.part_id FROM queen.deleted_messages AS d WHERE d.part_id = u.part_id) IS NOT NULL
    ) AS a ON true;
END $$;
COMMENT ON FUNCTION queen.places IS 'Internal: the positions of cursors that are moved to a time.';

-- The offset of a message, given by its transaction id or its message id; null if there is none.
CREATE OR REPLACE FUNCTION queen.find_message(p_part bigint, p_off bigint, p_hash uuid) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_off bigint;
BEGIN
    SELECT t.off INTO v_off FROM queen.transaction_ids AS t WHERE t.part_id = p_part AND t.hash = p_hash;
    v_off := coalesce(v_off, p_off);
    IF EXISTS (SELECT 1 FROM queen.deleted_messages AS d WHERE d.part_id = p_part AND d.offsets @> v_off) THEN
        RETURN NULL;
    END IF;
    SELECT CASE WHEN s.last_off - s.n < v_off THEN v_off END INTO v_off
    FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off >= v_off ORDER BY s.last_off LIMIT 1;
    RETURN CASE WHEN FOUND THEN v_off END;
END $$;
COMMENT ON FUNCTION queen.find_message IS 'Internal: the offset of a message, by partition and transaction id.';

-- Makes a message done for cursors, as if their groups had completed it. The caller has locked the partition and the
-- cursors.
CREATE OR REPLACE FUNCTION queen.finish(p_part bigint, p_grp bigint[], p_off bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM queen.pass_over(p_part, c.grp_id, int8multirange(int8range(p_off, p_off, '[]')), p_now)
    FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = ANY(p_grp) AND c.acked < p_off AND NOT coalesce(c.ahead @> p_off, false);
    -- Not cursors that wait: the time of a retry stays.
    PERFORM queen.park(array_agg(c.part_id), array_agg(c.grp_id), array_agg(c.ver)) FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = ANY(p_grp) AND c.ready_at <= p_now
    HAVING count(*) > 0;
END $$;
COMMENT ON FUNCTION queen.finish IS 'Internal: finishes a message for cursors.';
