-- Purpose:   deletes one message with its payload, dead letters and traces. Its transaction id is free again. Its
--            offset stays taken, and it is done for every group.
-- Arguments: p_part; p_off and p_hash: its offset by the form of its message id, and its hash (queen.transaction_hash)
-- Returns:   whether there was one.
-- Locks:     the partition, then the cursors of the partition in grp_id order.
-- Writes:    segments, transaction_ids, deleted_messages, dead_letter_queue, traces, partition_consumers.
CREATE OR REPLACE FUNCTION queen.delete_message_v1(p_part bigint, p_off bigint, p_hash uuid) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_off bigint;
    v_groups bigint[];
BEGIN
    PERFORM 1 FROM queen.partition_locks AS h WHERE h.part_id = p_part FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    v_off := queen.find_message(p_part, p_off, p_hash);
    IF v_off IS NULL THEN
        RETURN false;
    END IF;
    SELECT array_agg(u.grp_id) INTO v_groups
    FROM (
        SELECT c.grp_id FROM queen.partition_consumers AS c WHERE c.part_id = p_part ORDER BY c.grp_id FOR UPDATE
    ) AS u;
    PERFORM queen.blank_message(p_part, v_off);
    DELETE FROM queen.dead_letter_queue AS d WHERE d.part_id = p_part AND d.off = v_off;
    DELETE FROM queen.traces AS t WHERE t.part_id = p_part AND t.off = v_off;
    INSERT INTO queen.deleted_messages AS d (part_id, offsets)
    VALUES (p_part, int8multirange(int8range(v_off, v_off, '[]')))
    ON CONFLICT (part_id) DO UPDATE SET offsets = d.offsets + excluded.offsets;
    PERFORM queen.finish(p_part, v_groups, v_off, queen.write_clock());
    RETURN true;
END $$;
COMMENT ON FUNCTION queen.delete_message_v1 IS
    'Deletes one message. Its offset stays taken, and counts as finished for every group.';

-- Writes a segment again with null in place of a message. This deletes its transaction id too; the hash in ids stays, for
-- requests that name the message by its message id.
CREATE OR REPLACE FUNCTION queen.blank_message(p_part bigint, p_off bigint) RETURNS void
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_segment record;
    v_pos int;
    v_begin int;      -- bytes before the message, and up to its end
    v_end int;
    v_shift int;      -- by how much the ends of it and of later ones move
    v_blank CONSTANT bytea := '{"payload":null}';
BEGIN
    -- Copies, because the columns may be stored out of line, and each access would fetch them again. And locked,
    -- because a key rotation writes segments without the lock of the partition.
    SELECT s.last_off, s.n, substr(s.ends, 1) AS ends, substr(s.data, 1) AS data, s.ids INTO v_segment
    FROM queen.segments AS s WHERE s.part_id = p_part AND s.last_off >= p_off ORDER BY s.last_off LIMIT 1
    FOR NO KEY UPDATE;
    v_pos := p_off - v_segment.last_off + v_segment.n - 1;
    v_begin := queen.message_end(v_segment.ends, v_pos - 1) + 1;
    v_end := queen.message_end(v_segment.ends, v_pos);
    v_shift := v_begin + octet_length(v_blank) - v_end;
    UPDATE queen.segments AS s
    SET
        data = substr(v_segment.data, 1, v_begin) || v_blank || substr(v_segment.data, v_end + 1),
        ends = substr(v_segment.ends, 1, 4 * v_pos) || (
            SELECT string_agg(int4send(queen.message_end(v_segment.ends, i.pos) + v_shift), ''::bytea ORDER BY i.pos)
            FROM generate_series(v_pos, v_segment.n - 1) AS i (pos)
        )
    WHERE s.part_id = p_part AND s.last_off = v_segment.last_off;
    IF v_segment.ids IS NOT NULL THEN
        DELETE FROM queen.transaction_ids AS t
        WHERE t.part_id = p_part AND t.off = p_off
            AND t.hash = encode(substr(v_segment.ids, 16 * v_pos + 1, 16), 'hex')::uuid;
    END IF;
END $$;
COMMENT ON FUNCTION queen.blank_message IS 'Internal: removes a message from its segment, and its transaction id.';
