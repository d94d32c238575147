-- Hides partitions from all calls: a push or an ack that knows one by its number finds it unknown.
-- queen.empty_partitions removes their contents later. The caller has locked the queue row, so that no group or
-- partition is made meanwhile.
CREATE OR REPLACE FUNCTION queen.hide_partitions(p_part bigint[]) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = ANY(p_part) ORDER BY h.part_id FOR UPDATE;
    PERFORM 1 FROM queen.partition_consumers AS c WHERE c.part_id = ANY(p_part) ORDER BY c.part_id, c.grp_id FOR UPDATE;
    DELETE FROM queen.partition_consumers AS c WHERE c.part_id = ANY(p_part);
    DELETE FROM queen.partition_locks AS h WHERE h.part_id = ANY(p_part);
    DELETE FROM queen.partitions AS p WHERE p.id = ANY(p_part);
    DELETE FROM queen.moved_partitions AS m WHERE m.part_id = ANY(p_part) AND m.state = 'here';
END $$;
COMMENT ON FUNCTION queen.hide_partitions IS 'Internal: makes partitions invisible to all calls.';

-- Removes the contents of hidden partitions, at most p_step rows (null: all). Returns how many rows; fewer than p_step:
-- that was all. Each table with a column part_id has a line here, or in queen.hide_partitions.
CREATE OR REPLACE FUNCTION queen.empty_partitions(p_part bigint[], p_step int) RETURNS int
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_left int := p_step;
    v_rows int;
BEGIN
    DELETE FROM queen.dead_letter_queue AS d WHERE d.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.dead_letter_queue AS l WHERE l.part_id = ANY(p_part) LIMIT v_left));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_left := v_left - v_rows;
    DELETE FROM queen.traces AS t WHERE t.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.traces AS l WHERE l.part_id = ANY(p_part) LIMIT v_left));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_left := v_left - v_rows;
    DELETE FROM queen.stream_state AS s WHERE s.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.stream_state AS l WHERE l.part_id = ANY(p_part) LIMIT v_left));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_left := v_left - v_rows;
    DELETE FROM queen.stream_cycles AS y WHERE y.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.stream_cycles AS l WHERE l.part_id = ANY(p_part) LIMIT v_left));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_left := v_left - v_rows;
    DELETE FROM queen.transaction_ids AS t WHERE t.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.transaction_ids AS l WHERE l.part_id = ANY(p_part) LIMIT v_left));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_left := v_left - v_rows;
    DELETE FROM queen.segments AS s WHERE s.ctid = ANY(ARRAY(
        SELECT l.ctid FROM queen.segments AS l WHERE l.part_id = ANY(p_part) LIMIT v_left));
    GET DIAGNOSTICS v_rows = ROW_COUNT;
    v_left := v_left - v_rows;
    DELETE FROM queen.deleted_messages AS d WHERE d.part_id = ANY(p_part);
    RETURN p_step - v_left;
END $$;
COMMENT ON FUNCTION queen.empty_partitions IS
    'Internal: removes the contents of hidden partitions, a bounded number of rows at a time.';

-- Removes everything of partitions at once. The caller holds the queue row, as for queen.hide_partitions.
CREATE OR REPLACE FUNCTION queen.remove_partitions(p_part bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM queen.hide_partitions(p_part);
    PERFORM queen.empty_partitions(p_part, NULL);
END $$;
COMMENT ON FUNCTION queen.remove_partitions IS 'Internal: removes partitions with all their contents.';
