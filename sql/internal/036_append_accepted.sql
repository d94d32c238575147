-- Appends messages that have been accepted already, so that no maximum size refuses them: those of the spool and of the
-- outbox. The arguments are those of push_to_waiters_v1, without waiting pops if p_wait_grp is null; p_sent_at: when they
-- were sent before, if the outcome is unknown.
-- Returns the partitions that are unknown (null: none), and whether the push options have changed. Either means that
-- nothing was stored. given: what the waiting pops get, in JSON: arrays of pop, part_id, first_off, upto, seen, attempt,
-- and created_at (null: nothing).
CREATE OR REPLACE FUNCTION queen.append_accepted(
    p_flush uuid, p_sent_at timestamptz,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint,
    p_wait_grp bigint[] DEFAULT NULL, p_wait_lease uuid[] DEFAULT NULL, p_wait_batch int[] DEFAULT NULL,
    p_wait_parts int[] DEFAULT NULL, p_wait_seconds int[] DEFAULT NULL,
    OUT unknown bigint[], OUT stale bool, OUT given text
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_again CONSTANT bool := p_sent_at IS NOT NULL;
    v_queues bigint[];
    v_n bigint[];
BEGIN
    -- In the order of all locks: the sizes of queues come after partitions and before cursors, which the push takes both.
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    SELECT array_agg(w.queue_id), array_agg(w.n) INTO v_queues, v_n
    FROM (
        SELECT p.queue_id, sum(u.n)::bigint AS n
        FROM unnest(p_part, p_n) AS u (part_id, n) JOIN queen.partitions AS p ON p.id = ANY(ARRAY[u.part_id])
        GROUP BY p.queue_id
    ) AS w;
    PERFORM queen.lock_sizes(v_queues);
    -- How far queen.flushed_segment looks back: the outage may have been long. The server's clock may be ahead of ours.
    PERFORM set_config('queen.sent_at', least(p_sent_at, queen.clock())::text, true);
    IF p_wait_grp IS NULL THEN
        SELECT array_agg(r.part_id) FILTER (WHERE r.first_off IS NULL), count(*) = 0 INTO unknown, stale
        FROM queen.push_messages_v1(
            p_flush, v_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash,
            p_version, NULL) AS r;
    ELSE
        SELECT array_agg(r.part_id) FILTER (WHERE r.first_off IS NULL), count(*) = 0,
            (json_agg(json_build_array(r.pop, r.part_id, r.first_off, r.upto, r.seen, r.attempt, r.at))
                FILTER (WHERE r.pop IS NOT NULL))::text
        INTO unknown, stale, given
        FROM (
            SELECT w.*, max(w.created_at) OVER (PARTITION BY w.part_id) AS at
            FROM queen.push_to_waiters_v1(
                p_flush, v_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash,
                p_version, NULL, p_wait_grp, p_wait_lease, p_wait_batch, p_wait_parts, p_wait_seconds) AS w
        ) AS r;
    END IF;
    IF NOT stale AND unknown IS NULL THEN
        PERFORM queen.add_to_sizes(v_queues, v_n);
    END IF;
END $$;
COMMENT ON FUNCTION queen.append_accepted IS
    'Internal: appends messages that have been accepted already, whatever the maximum sizes of their queues.';
