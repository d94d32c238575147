-- Purpose:   what waits in the outbox, for metrics and the dashboard.
-- Returns:   one row: messages that wait, with those that are held back, and the age of the oldest in seconds (0: none);
--            partitions that are held back, and for how many seconds the first of them. Each is counted up to p_most.
-- Reads:     as read_outbox_v1, only what is new since the last move.
CREATE OR REPLACE FUNCTION queen.count_outbox_v1(p_most int)
RETURNS TABLE (messages bigint, oldest_s float8, held_partitions bigint, held_s float8)
LANGUAGE sql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
BEGIN ATOMIC
    WITH waiting AS (
        SELECT o.pushed_at, o.n
        FROM queen.outbox_position AS a
        CROSS JOIN LATERAL queen.outbox_ranges(a.seen, pg_current_snapshot(), a.last_xid, a.last_seq) AS r
        CROSS JOIN LATERAL (
            SELECT * FROM queen.outbox AS o
            WHERE (o.xid, o.seq) > (r.from_xid, r.from_seq) AND o.xid <= r.to_xid
            ORDER BY o.xid, o.seq
        ) AS o
        WHERE a.id
        LIMIT p_most
    ), held AS (
        SELECT o.pushed_at FROM queen.outbox_held AS o LIMIT p_most
    ), partitions AS (
        SELECT p.since FROM queen.outbox_held_partitions AS p LIMIT p_most
    ), ages AS (
        SELECT
            (SELECT min(w.pushed_at) FROM waiting AS w) AS waiting, (SELECT min(h.pushed_at) FROM held AS h) AS held,
            (SELECT min(p.since) FROM partitions AS p) AS since
    )
    SELECT least(p_most, (SELECT coalesce(sum(w.n), 0) FROM waiting AS w)) + (SELECT count(*) FROM held),
        greatest(0, date_part('epoch', queen.clock() - least(a.waiting, a.held))),
        (SELECT count(*) FROM partitions), greatest(0, date_part('epoch', queen.clock() - a.since))
    FROM ages AS a;
END;
COMMENT ON FUNCTION queen.count_outbox_v1 IS 'What waits in the outbox, and what of it is held back.';
