-- Purpose:   reads the metrics of queues and groups, as of the last refresh of the statistics.
-- Returns:   how many queues and groups there are; age of the oldest message that some group has not done, 0 if there
--            is none; age of the oldest figures, null if there are none.
CREATE OR REPLACE FUNCTION queen.summarize_figures_v1(
    OUT queues bigint, OUT groups bigint, OUT oldest_s float8, OUT statistics_age_s float8
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT
        (SELECT count(*) FROM queen.queues), (SELECT count(*) FROM queen.consumer_groups_metadata),
        coalesce(greatest(0, date_part('epoch', queen.clock() - min(t.oldest_at))), 0),
        date_part('epoch', queen.clock() - min(t.computed_at))
    FROM queen.queue_stats AS t;
END;
COMMENT ON FUNCTION queen.summarize_figures_v1 IS
    'The number of queues and groups, and the age of the oldest unacknowledged message.';

-- Purpose:   figures of the queues that were made first.
-- Arguments: p_limit  so many at the most: each becomes series of its own
CREATE OR REPLACE FUNCTION queen.list_queue_figures_v1(p_limit int) RETURNS TABLE (
    queue text, partitions bigint, messages bigint, pending bigint, leased bigint, dead_letters bigint,
    paused bool
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.name, t.partitions, t.total, t.pending, t.processing, t.dead_letter, q.paused
    FROM queen.queue_stats AS t JOIN queen.queues AS q ON q.id = t.queue_id
    ORDER BY q.id LIMIT p_limit;
END;
COMMENT ON FUNCTION queen.list_queue_figures_v1 IS 'Statistics of the queues that were created first.';

-- Purpose:   figures of the consumer groups that were made first.
-- Arguments: p_limit  so many at the most: each becomes series of its own
CREATE OR REPLACE FUNCTION queen.list_group_figures_v1(p_limit int) RETURNS TABLE (
    queue text, consumer_group text, lag bigint, lag_s float8, leases bigint, leased bigint, paused bool
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.name, g.name, t.total_lag,
        coalesce(greatest(0, date_part('epoch', queen.clock() - t.oldest_at)), 0), t.leases, t.leased_messages,
        g.paused
    FROM queen.group_stats AS t
    JOIN queen.consumer_groups_metadata AS g ON g.id = t.grp_id
    JOIN queen.queues AS q ON q.id = g.queue_id
    ORDER BY g.id LIMIT p_limit;
END;
COMMENT ON FUNCTION queen.list_group_figures_v1 IS 'Statistics of the consumer groups that were created first.';
