-- Purpose:   stores the next push requests of a lane of a spool file and notes in the same transaction how far it is
--            stored.
-- Arguments: p_lane      the lane: requests of the file that share no partition with those of its other lanes
--            p_from, p_upto   the requests of the lane that this call stores: from p_from, up to but without p_upto
--            p_sent_at   when their flush was sent to push_messages_v1 before, if it was and its outcome is unknown
--            the others  those of push_messages_v1, except the limits: pushes in the spool are accepted already
-- Returns:   one row: how many requests of the lane are stored now, the partitions that are unknown (null: none), and
--            whether the push options have changed. If that is not p_upto nothing was done: the caller was wrong about
--            p_from, must make partitions, or must lay out again under the new options.
-- Locks:     the row of the lane, until commit: a repeated call waits for the first one and then finds it done. Then
--            those of push_messages_v1.
-- Writes:    spool_lanes, queue_sizes, and what push_messages_v1 writes.
-- Plans:     ADR 38 says why = ANY(ARRAY[x]).
CREATE OR REPLACE FUNCTION queen.replay_spool_v1(
    p_lane uuid, p_from bigint, p_upto bigint, p_sent_at timestamptz, p_flush uuid,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint,
    OUT replayed bigint, OUT unknown bigint[], OUT stale bool
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    stale := false;
    INSERT INTO queen.spool_lanes VALUES (p_lane, 0, queen.clock()) ON CONFLICT DO NOTHING;
    SELECT l.replayed INTO replayed FROM queen.spool_lanes AS l WHERE l.lane = p_lane FOR UPDATE;
    IF replayed <> p_from THEN
        RETURN;
    END IF;
    IF p_part <> '{}' THEN
        SELECT a.unknown, a.stale INTO unknown, stale
        FROM queen.append_accepted(
            p_flush, p_sent_at, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version) AS a;
        IF stale OR unknown IS NOT NULL THEN
            RETURN;
        END IF;
    END IF;
    UPDATE queen.spool_lanes AS l SET replayed = p_upto, replayed_at = queen.clock() WHERE l.lane = p_lane;
    replayed := p_upto;
END $$;
COMMENT ON FUNCTION queen.replay_spool_v1 IS
    'Stores the next push requests of a lane of a spool file, and its replay position.';
