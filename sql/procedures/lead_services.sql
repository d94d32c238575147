-- Purpose:   makes a worker the one that runs the background services, or keeps it so, for some seconds.
-- Returns:   whether it is. A row with an end, and no advisory lock: that would be bound to a session, which a pooler
--            in transaction mode hands to other clients. If the stored time lies too far in the future, the clock has
--            stepped back since: then it ends as if it had been given now.
-- Locks, writes: service_leader.
CREATE OR REPLACE FUNCTION queen.lead_services_v1(p_holder uuid, p_seconds float8) RETURNS bool
LANGUAGE plpgsql
AS $$
BEGIN
    INSERT INTO queen.service_leader AS l (holder, expires_at)
    VALUES (p_holder, clock_timestamp() + make_interval(secs => p_seconds))
    ON CONFLICT (id) DO UPDATE
    SET
        holder = CASE WHEN l.expires_at <= clock_timestamp() THEN excluded.holder ELSE l.holder END,
        expires_at = excluded.expires_at
    WHERE l.holder = excluded.holder OR l.expires_at <= clock_timestamp() OR l.expires_at > excluded.expires_at;
    RETURN EXISTS (SELECT 1 FROM queen.service_leader AS l WHERE l.holder = p_holder);
END $$;
COMMENT ON FUNCTION queen.lead_services_v1 IS
    'Makes a worker the leader that runs the background jobs, or keeps it so.';

-- Purpose:   ends the leadership of a worker that stops, so that another need not wait for the end of its time.
CREATE OR REPLACE FUNCTION queen.resign_services_v1(p_holder uuid) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.service_leader AS l WHERE l.holder = p_holder;
END $$;
COMMENT ON FUNCTION queen.resign_services_v1 IS 'Ends the leadership of a worker that stops.';

-- Purpose:   the queues in which a service may find work. Returns: their numbers, in order.
CREATE OR REPLACE FUNCTION queen.find_serviced_queues_v1(p_service text) RETURNS SETOF bigint
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT q.id FROM queen.queues AS q
    WHERE CASE p_service
        WHEN 'retention' THEN q.completed_retention_seconds > 0 OR (q.retention_enabled AND q.retention_seconds > 0)
        WHEN 'expiry' THEN q.ttl > 0
        WHEN 'eviction' THEN q.max_wait_time_seconds > 0
        ELSE true
    END
    ORDER BY q.id;
END;
COMMENT ON FUNCTION queen.find_serviced_queues_v1 IS
    'The queues in which retention, expiry, eviction or clean-up may have work.';

-- Purpose:   forgets flushes that were sent again so long ago that no sending can still be on its way.
CREATE OR REPLACE FUNCTION queen.forget_fenced_flushes_v1(p_not_after timestamptz DEFAULT NULL) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM queen.fenced_flushes AS f WHERE f.fenced_at < (SELECT queen.older_than('1 day', p_not_after));
END $$;
COMMENT ON FUNCTION queen.forget_fenced_flushes_v1 IS 'Deletes old records of batches that were sent twice.';
