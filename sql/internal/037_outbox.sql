-- Where a snapshot shows rows of the outbox that an earlier one did not: the transactions that were under way in the earlier
-- one, one range each, and all that began later. In the order of transactions. Without an earlier one: everything. A range
-- begins after its lower row, and without what is up to the last row that was moved: with two lower bounds, PostgreSQL would
-- begin at the first one, and read all rows of a long transaction that were moved again, until they are vacuumed.
CREATE OR REPLACE FUNCTION queen.outbox_ranges(
    p_seen pg_snapshot, p_target pg_snapshot, p_last_xid xid8 DEFAULT NULL, p_last_seq bigint DEFAULT NULL
)
RETURNS TABLE (from_xid xid8, from_seq bigint, to_xid xid8)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT
        CASE WHEN p_last_xid >= r.from_xid THEN p_last_xid ELSE r.from_xid END,
        CASE WHEN p_last_xid >= r.from_xid THEN p_last_seq ELSE 0 END, r.to_xid
    FROM (
        SELECT x.xid AS from_xid, x.xid AS to_xid
        FROM pg_snapshot_xip(p_seen) AS x (xid) WHERE pg_visible_in_snapshot(x.xid, p_target)
        UNION ALL
        SELECT pg_snapshot_xmax(p_seen), pg_snapshot_xmax(p_target) WHERE p_seen IS NOT NULL
        UNION ALL
        SELECT '0'::xid8, '18446744073709551615'::xid8 WHERE p_seen IS NULL
    ) AS r
    WHERE p_last_xid IS NULL OR r.to_xid >= p_last_xid
    ORDER BY r.from_xid;
END;
COMMENT ON FUNCTION queen.outbox_ranges IS
    'Internal: ranges of transactions whose rows of the outbox a snapshot shows and an earlier one did not.';
