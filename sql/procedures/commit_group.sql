-- Purpose:   carries out calls of different clients in one transaction, which waits for the disk once.
-- Arguments: those of push_to_waiters_v1 (p_wait_grp null: no pop waits), of complete_messages_v1, of ack_messages_v1
--            without p_final, and of pop_unified_batch_v1, in that order. A call that is not in the group has null for its
--            first array (p_part, p_complete_part, p_ack_part, p_batch).
-- Returns:   the rows of each call, with its columns, the others null, and kind: push, complete, ack or pop.
-- Locks:     as these, one after another: partitions before cursors, as in transactions. The pop never waits for a
--            lock.
-- Writes:    what these write. If one fails, all are undone.
CREATE OR REPLACE FUNCTION queen.commit_group_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint, p_limited bigint[],
    p_wait_grp bigint[], p_wait_lease uuid[], p_wait_batch int[], p_wait_parts int[], p_wait_seconds int[],
    p_complete_part bigint[], p_complete_grp bigint[], p_complete_lease uuid[],
    p_complete_first bigint[], p_complete_last bigint[],
    p_next_lease uuid[], p_next_batch int[], p_next_seconds int[],
    p_ack_part bigint[], p_ack_grp bigint[], p_ack_lease uuid[], p_ack_kind text[], p_ack_first bigint[],
    p_ack_last bigint[], p_ack_hash uuid[], p_ack_error text[],
    p_batch int[], p_parts int[], p_lease uuid[], p_seconds int[], p_pop int[], p_grp bigint[], p_pop_part bigint[],
    p_bytes bigint, p_bytes_all bigint, p_marked bigint[], p_mark text[]
) RETURNS TABLE (
    kind text,
    part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[], room bigint,
    ord int, problem text, ack_first_off bigint, done_upto bigint, also_done bigint[], within bigint,
    exists_upto bigint, released bool, dead bool, ready bool,
    pop int, grp_id bigint, pop_part_id bigint, pop_first_off bigint, upto bigint, skip bigint[], seen bigint,
    attempt int, ready_in float8, off bigint, segment_at timestamptz, ends bytea, start int, data bytea, mark text
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    IF p_part IS NOT NULL AND p_wait_grp IS NULL THEN
        RETURN QUERY
        SELECT 'push', r.part_id, r.first_off, r.created_at, r.dup_pos, r.dup_off, r.room,
            NULL::int, NULL, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint, NULL::bigint,
            NULL::bool, NULL::bool, NULL::bool,
            NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint, NULL::int,
            NULL::float8, NULL::bigint, NULL::timestamptz, NULL::bytea, NULL::int, NULL::bytea, NULL
        FROM queen.push_messages_v1(
            p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version, p_limited) AS r;
    ELSIF p_part IS NOT NULL THEN
        RETURN QUERY
        SELECT 'push', r.part_id, r.first_off, r.created_at, r.dup_pos, r.dup_off, r.room,
            NULL::int, NULL, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint, NULL::bigint,
            NULL::bool, NULL::bool, NULL::bool,
            r.pop, r.grp_id, NULL::bigint, NULL::bigint, r.upto, NULL::bigint[], r.seen, r.attempt,
            NULL::float8, NULL::bigint, NULL::timestamptz, NULL::bytea, NULL::int, NULL::bytea, NULL
        FROM queen.push_to_waiters_v1(
            p_flush, p_again, p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash, p_version, p_limited,
            p_wait_grp, p_wait_lease, p_wait_batch, p_wait_parts, p_wait_seconds) AS r;
    END IF;
    IF p_complete_part IS NOT NULL THEN
        RETURN QUERY
        SELECT 'complete', NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint,
            r.ord, NULL, NULL::bigint, r.done_upto, NULL::bigint[], NULL::bigint, NULL::bigint, r.released, NULL::bool, r.ready,
            NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, r.upto, NULL::bigint[], r.seen, r.attempt,
            NULL::float8, r.off, r.created_at, r.ends, r.start, r.data, NULL
        FROM queen.complete_messages_v1(
            p_complete_part, p_complete_grp, p_complete_lease, p_complete_first, p_complete_last, p_next_lease, p_next_batch, p_next_seconds) AS r;
    END IF;
    IF p_ack_part IS NOT NULL THEN
        RETURN QUERY
        SELECT 'ack', NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint,
            r.ord, r.problem, r.first_off, r.done_upto, r.also_done, r.within, r.exists_upto, r.released, r.dead, r.ready,
            NULL::int, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint, NULL::int,
            NULL::float8, NULL::bigint, NULL::timestamptz, NULL::bytea, NULL::int, NULL::bytea, NULL
        FROM queen.ack_messages_v1(
            p_ack_part, p_ack_grp, p_ack_lease, p_ack_kind, p_ack_first, p_ack_last, p_ack_hash, p_ack_error, false) AS r;
    END IF;
    IF p_batch IS NOT NULL THEN
        RETURN QUERY
        SELECT 'pop', NULL::bigint, NULL::bigint, NULL::timestamptz, NULL::int[], NULL::bigint[], NULL::bigint,
            NULL::int, NULL, NULL::bigint, NULL::bigint, NULL::bigint[], NULL::bigint, NULL::bigint,
            NULL::bool, NULL::bool, NULL::bool,
            r.pop, r.grp_id, r.part_id, r.first_off, r.upto, r.skip, r.seen, r.attempt, r.ready_in, r.off, r.created_at,
            r.ends, r.start, r.data, r.mark
        FROM queen.pop_unified_batch_v1(
            p_batch, p_parts, p_lease, p_seconds, p_pop, p_grp, p_pop_part, p_bytes, p_bytes_all, p_marked, p_mark) AS r;
    END IF;
END $$;
COMMENT ON FUNCTION queen.commit_group_v1 IS
    'Executes calls of different clients in one transaction. The server uses it when they start at the same moment.';
