-- Where a snapshot shows rows of the outbox that an earlier one did not: the transactions that were under way in the earlier
-- one, one range each, and all that began later. In the order of transactions. Without an earlier one: everything.
CREATE OR REPLACE FUNCTION queen.outbox_ranges(p_seen pg_snapshot, p_target pg_snapshot)
RETURNS TABLE (from_xid xid8, to_xid xid8)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT r.from_xid, r.to_xid
    FROM (
        SELECT x.xid AS from_xid, x.xid AS to_xid
        FROM pg_snapshot_xip(p_seen) AS x (xid) WHERE pg_visible_in_snapshot(x.xid, p_target)
        UNION ALL
        SELECT pg_snapshot_xmax(p_seen), pg_snapshot_xmax(p_target) WHERE p_seen IS NOT NULL
        UNION ALL
        SELECT '0'::xid8, '18446744073709551615'::xid8 WHERE p_seen IS NULL
    ) AS r
    ORDER BY r.from_xid;
END;
COMMENT ON FUNCTION queen.outbox_ranges IS
    'Internal: ranges of transactions whose rows of the outbox a snapshot shows and an earlier one did not.';
