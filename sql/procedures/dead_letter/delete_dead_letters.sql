-- Purpose:   deletes one dead letter.  Returns: whether there was one.
CREATE OR REPLACE FUNCTION queen.delete_dead_letter_v1(p_id bigint) RETURNS bool
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    DELETE FROM queen.dead_letter_queue AS d WHERE d.id = p_id;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION queen.delete_dead_letter_v1 IS 'Deletes one dead letter.';

-- Purpose:   deletes dead letters of a queue, of one group if it is named, newest failure first: a page, by the keys
--            that the last one has answered. Every page makes progress, also where the group has none there.
-- Arguments: p_failed_at, p_id  only what failed before that (null: from the newest on);  p_step  dead letters to look at
-- Returns:   deleted, and failed_at with id, to go on from (null: that was all).
CREATE OR REPLACE FUNCTION queen.delete_dead_letters_v1(
    p_queue text, p_group text, p_failed_at timestamptz, p_id bigint, p_step int,
    OUT deleted bigint, OUT failed_at timestamptz, OUT id bigint
)
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_times timestamptz[];
BEGIN
    SELECT array_agg(u.id), array_agg(u.failed_at) INTO v_ids, v_times
    FROM (
        SELECT d.id, d.failed_at FROM queen.dead_letter_queue AS d
        WHERE d.queue_id = (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue)
            AND (d.failed_at, d.id) < (coalesce(p_failed_at, 'infinity'), coalesce(p_id, 9223372036854775807))
        ORDER BY d.failed_at DESC, d.id DESC LIMIT p_step
    ) AS u;
    id := v_ids[p_step];
    failed_at := v_times[p_step];
    DELETE FROM queen.dead_letter_queue AS d WHERE d.id = ANY(v_ids) AND (p_group IS NULL OR d.consumer_group = p_group);
    GET DIAGNOSTICS deleted = ROW_COUNT;
END $$;
COMMENT ON FUNCTION queen.delete_dead_letters_v1 IS 'Deletes dead letters of a queue or group, a page at a time.';
