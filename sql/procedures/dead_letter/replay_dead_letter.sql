-- Purpose:   appends the message of a dead letter to a partition and deletes the dead letter: both or nothing.
-- Arguments: p_id, and those of push_messages_v1 for one segment with the one message
-- Returns:   outcome: moved; duplicate: its transaction id is stored there already (off says where), nothing was
--            written; missing: there is no such dead letter, nothing was written; unknown: there is no such partition;
--            stale: the push options have changed; full: its queue has no room.
-- Locks:     as a push; then the dead letter.
-- Writes:    as a push; dead_letter_queue.
CREATE OR REPLACE FUNCTION queen.replay_dead_letter_v1(
    p_id bigint, p_flush uuid, p_again bool, p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint, p_limited bigint[],
    OUT outcome text, OUT off bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_pushed record;
BEGIN
    SELECT r.first_off, r.dup_off, r.room INTO v_pushed
    FROM queen.push_messages_v1(
        p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version, p_limited) AS r;
    IF NOT FOUND THEN
        outcome := 'stale';
        RETURN;
    ELSIF v_pushed.room IS NOT NULL THEN
        outcome := 'full';
        RETURN;
    ELSIF v_pushed.dup_off IS NOT NULL THEN
        -- Its own replay, a moment ago, has deleted the dead letter.
        IF EXISTS (SELECT 1 FROM queen.dead_letter_queue AS d WHERE d.id = p_id) THEN
            outcome := 'duplicate';
            off := v_pushed.dup_off[1];
        ELSE
            outcome := 'missing';
        END IF;
        RETURN;
    ELSIF v_pushed.first_off IS NULL THEN
        outcome := 'unknown';
        RETURN;
    END IF;
    outcome := 'moved';
    off := v_pushed.first_off;
    DELETE FROM queen.dead_letter_queue AS d WHERE d.id = p_id;
    -- Sent again, the first sending may have deleted it.
    IF NOT FOUND AND NOT p_again THEN
        RAISE EXCEPTION 'no dead letter %', p_id USING ERRCODE = 'QN003';
    END IF;
EXCEPTION WHEN SQLSTATE 'QN003' THEN
    outcome := 'missing';
    off := NULL;
END $$;
COMMENT ON FUNCTION queen.replay_dead_letter_v1 IS
    'Pushes a dead letter to the end of a partition, and removes it from the dead letters.';
