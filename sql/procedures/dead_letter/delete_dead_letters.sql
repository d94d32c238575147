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

-- Purpose:   deletes dead letters of a queue, newest failure first: a page, by the keys that the last one has answered.
--            Every page makes progress, also where none of it matches.
-- Arguments: p_group, p_partition, p_error (its first 1000 characters): null matches any; p_failed_at, p_id  only what failed before that (null: from the newest on);  p_step  dead letters to look at
-- Returns:   deleted, and failed_at with id, to go on from (null: that was all).
CREATE OR REPLACE FUNCTION queen.delete_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_error text, p_failed_at timestamptz, p_id bigint, p_step int,
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
    DELETE FROM queen.dead_letter_queue AS d
    WHERE d.id = ANY(v_ids) AND queen.is_meant(d, p_group, p_partition, p_error);
    GET DIAGNOSTICS deleted = ROW_COUNT;
END $$;
COMMENT ON FUNCTION queen.delete_dead_letters_v1 IS 'Deletes dead letters of a queue or group, a page at a time.';

-- Purpose:   the numbers of dead letters of a queue, oldest failure first: a page, by the keys that the last one has
--            answered. Every page makes progress, also where none of it matches.
-- Arguments: as queen.delete_dead_letters_v1; p_failed_at, p_id: only what failed after that (null: from the oldest on)
-- Returns:   numbers, and failed_at with id, to go on from (null: that was all).
CREATE OR REPLACE FUNCTION queen.match_dead_letters_v1(
    p_queue text, p_group text, p_partition text, p_error text, p_failed_at timestamptz, p_id bigint, p_step int,
    OUT numbers bigint[], OUT failed_at timestamptz, OUT id bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_ids bigint[];
    v_times timestamptz[];
BEGIN
    SELECT array_agg(u.id), array_agg(u.failed_at), array_agg(u.id) FILTER (WHERE u.meant) INTO v_ids, v_times, numbers
    FROM (
        SELECT d.id, d.failed_at, queen.is_meant(d, p_group, p_partition, p_error) AS meant
        FROM queen.dead_letter_queue AS d
        WHERE d.queue_id = (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue)
            AND (d.failed_at, d.id) > (coalesce(p_failed_at, '-infinity'), coalesce(p_id, -1))
        ORDER BY d.failed_at, d.id LIMIT p_step
    ) AS u;
    id := v_ids[p_step];
    failed_at := v_times[p_step];
END $$;
COMMENT ON FUNCTION queen.match_dead_letters_v1 IS 'The numbers of dead letters of a queue, a page at a time.';

-- Whether a dead letter is of a group, a partition and an error; null matches any.
CREATE OR REPLACE FUNCTION queen.is_meant(
    p_letter queen.dead_letter_queue, p_group text, p_partition text, p_error text
) RETURNS bool
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (p_group IS NULL OR p_letter.consumer_group = p_group) AND (p_error IS NULL OR left(p_letter.error, 1000) = p_error)
        AND (p_partition IS NULL
            OR p_partition = (SELECT p.name FROM queen.partitions AS p WHERE p.id = p_letter.part_id));
END $$;
COMMENT ON FUNCTION queen.is_meant IS 'Internal: whether a dead letter matches.';
