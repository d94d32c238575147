-- Purpose:   recomputes the statistics of queues and groups: of the smallest queues, or of all in pages.
-- Arguments: p_rows_max  partitions and cursors together that are looked at, 100 dead letters counting as one of them; a page
--                        has at least one queue
--            p_wait      waits while another server does the same; else it is left to that one
--            p_after     the last queue of the page before, 0 at first; null: the smallest queues
-- Returns:   how many queues and groups were computed, and rows of queues that are gone; skipped: another server does
--            it; last: where the next page begins (null: that was all).
-- Writes:    queue_stats, group_stats, group_metrics. Reads everything without locks.
CREATE OR REPLACE FUNCTION queen.refresh_statistics_v1(
    p_rows_max bigint, p_wait bool, p_after bigint,
    OUT queues int, OUT groups int, OUT removed int, OUT skipped bool, OUT last bigint
)
LANGUAGE plpgsql
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    -- Of all queues, or of small ones only: a request that needs the small ones does not wait for the large ones.
    v_lock CONSTANT bigint := 8030592561184403822 + CASE WHEN p_after IS NULL THEN 1 ELSE 0 END;
    v_now timestamptz;
    v_queues bigint[];
BEGIN
    IF p_wait THEN
        PERFORM pg_advisory_xact_lock(v_lock);
    ELSE
        skipped := NOT pg_try_advisory_xact_lock(v_lock);
        IF skipped THEN
            RETURN;
        END IF;
    END IF;
    skipped := false;
    IF p_after IS NOT NULL THEN
        -- Against plans of a time when tables were small, which would join row by row. What is left of such joins looks
        -- expensive enough to be compiled.
        PERFORM set_config('enable_nestloop', 'off', true), set_config('jit', 'off', true);
    END IF;
    v_now := queen.clock();
    SELECT * INTO v_queues, last FROM queen.choose_queues(p_rows_max, p_after);
    SELECT * INTO queues, groups FROM queen.write_statistics(v_queues, v_now);

    removed := 0;
    IF p_after IS NULL OR last IS NOT NULL THEN
        RETURN;
    END IF;
    -- A queue or group that was deleted while it was being counted.
    DELETE FROM queen.group_stats AS t
    WHERE NOT EXISTS (SELECT 1 FROM queen.consumer_groups_metadata AS g WHERE g.id = t.grp_id);
    DELETE FROM queen.queue_stats AS t WHERE NOT EXISTS (SELECT 1 FROM queen.queues AS q WHERE q.id = t.queue_id);
    GET DIAGNOSTICS removed = ROW_COUNT;
END $$;
COMMENT ON FUNCTION queen.refresh_statistics_v1 IS 'Computes the statistics of queues and consumer groups.';
