-- Where a cursor stands whose group has done everything up to an offset: deleted messages above it are done, too.
CREATE OR REPLACE FUNCTION queen.cursor_after(p_part bigint, p_off bigint, OUT acked bigint, OUT ahead int8multirange)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
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
COMMENT ON FUNCTION queen.cursor_after IS 'Internal: acked and ahead of a cursor that is put somewhere.';

-- The offset of a message that somebody names by its transaction id or by its message id; null if there is none.
CREATE OR REPLACE FUNCTION queen.find_message(p_part bigint, p_off bigint, p_hash uuid) RETURNS bigint
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
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
COMMENT ON FUNCTION queen.find_message IS 'Internal: the offset of a message by its names.';

-- Ends what cursors still had to do with a message, as if their groups had completed it. The caller holds the partition and
-- the cursors.
CREATE OR REPLACE FUNCTION queen.finish(p_part bigint, p_grp bigint[], p_off bigint, p_now timestamptz) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
AS $$
BEGIN
    PERFORM queen.pass_over(p_part, c.grp_id, int8multirange(int8range(p_off, p_off, '[]')), p_now)
    FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = ANY(p_grp) AND c.acked < p_off AND NOT coalesce(c.ahead @> p_off, false);
    -- Not those that wait: a retry's time stays.
    PERFORM queen.park(array_agg(c.part_id), array_agg(c.grp_id), array_agg(c.ver)) FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = ANY(p_grp) AND c.ready_at <= p_now
    HAVING count(*) > 0;
END $$;
COMMENT ON FUNCTION queen.finish IS 'Internal: ends what cursors still had to do with a message.';
