-- Purpose:   finds those of some rows that others have locked now, for which a call would wait.
-- Arguments: one element each: p_kind, and what it needs of p_id, p_grp, p_name and p_group
--            limited    the queue p_id has a maximum size and is pushed to
--            making     partitions of the queue p_name are made
--            subscribing  the group p_group of the queue p_name is made, or its cursors are
--            partition  the partition p_id is pushed to; with the cursors that this wakes
--            cursor     the cursor of group p_grp in partition p_id
--            lease      the cursors under the lease p_name
--            enqueuing  the queue p_name of simple-mq is enqueued to
-- Returns:   the numbers of those, from 1; what does not exist is not locked.
-- Locks:     all of them in any order, with SKIP LOCKED, as strongly as the call would, until it ends.
-- Plans:     ADR 38 says why part_id + 0.
CREATE OR REPLACE FUNCTION queen.find_locked_v1(
    p_kind text[], p_id bigint[], p_grp bigint[], p_name text[], p_group text[]
) RETURNS TABLE (ord int)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    -- Nothing is changed, so the commit need not wait for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    RETURN QUERY
    SELECT u.ord::int
    FROM unnest(p_kind, p_id, p_grp, p_name, p_group) WITH ORDINALITY AS u (kind, id, grp_id, name, group_name, ord)
    WHERE CASE u.kind
        WHEN 'limited' THEN EXISTS (
            SELECT 1 FROM queen.queues AS q
            WHERE q.id = u.id AND NOT EXISTS (
                SELECT 1 FROM queen.queues AS l WHERE l.id = q.id FOR NO KEY UPDATE SKIP LOCKED))
        WHEN 'making' THEN EXISTS (
            SELECT 1 FROM queen.queues AS q
            WHERE q.name = u.name AND NOT EXISTS (
                SELECT 1 FROM queen.queues AS l WHERE l.id = q.id FOR SHARE SKIP LOCKED))
        WHEN 'subscribing' THEN EXISTS (
            SELECT 1 FROM queen.queues AS q
            LEFT JOIN queen.consumer_groups_metadata AS g ON g.queue_id = q.id AND g.name = u.group_name
            WHERE q.name = u.name AND CASE
                WHEN g.id IS NULL THEN NOT EXISTS (
                    SELECT 1 FROM queen.queues AS l WHERE l.id = q.id FOR UPDATE SKIP LOCKED)
                ELSE NOT EXISTS (
                    SELECT 1 FROM queen.consumer_groups_metadata AS l WHERE l.id = g.id FOR UPDATE SKIP LOCKED)
            END)
        WHEN 'partition' THEN EXISTS (
            SELECT 1 FROM queen.partition_locks AS p
            WHERE p.part_id = u.id AND NOT EXISTS (
                SELECT 1 FROM queen.partition_locks AS l WHERE l.part_id = p.part_id FOR NO KEY UPDATE SKIP LOCKED)
        ) OR EXISTS (
            SELECT 1 FROM queen.partition_consumers AS c
            WHERE c.part_id + 0 = u.id AND c.ready_at = 'infinity'
                AND c.acked = (SELECT e.next_off - 1 FROM queen.log_ends AS e WHERE e.part_id = u.id)
                AND queen.is_cursor_locked(c.part_id, c.grp_id))
        WHEN 'cursor' THEN queen.is_cursor_locked(u.id, u.grp_id)
        WHEN 'lease' THEN EXISTS (
            SELECT 1 FROM queen.partition_consumers AS c
            WHERE c.lease = u.name::uuid AND queen.is_cursor_locked(c.part_id, c.grp_id))
        WHEN 'enqueuing' THEN EXISTS (
            SELECT 1 FROM simple_mq.counts AS c
            WHERE c.queue_id = u.name::uuid AND c.shard = 0 AND NOT EXISTS (
                SELECT 1 FROM simple_mq.counts AS l
                WHERE l.queue_id = c.queue_id AND l.shard = 0 FOR UPDATE SKIP LOCKED))
    END;
END $$;
COMMENT ON FUNCTION queen.find_locked_v1 IS
    'Rows that other transactions have locked. The server uses it when a call has waited for a lock.';

CREATE OR REPLACE FUNCTION queen.is_cursor_locked(p_part bigint, p_grp bigint) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM queen.partition_consumers AS c
    WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1 FOR UPDATE SKIP LOCKED;
    RETURN NOT FOUND;
END $$;
COMMENT ON FUNCTION queen.is_cursor_locked IS
    'Internal: whether another transaction has locked a cursor; if not, the caller now has.';
