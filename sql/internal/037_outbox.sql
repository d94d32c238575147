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

-- What a push with SQL has beside its payload and its transaction id, as it stands first in the object of the message
-- (queen/log/segment.py): the trace context, if it is in the form of W3C, and the headers, if there are any. NULL: nothing.
CREATE OR REPLACE FUNCTION queen.fields_of_push(p_traceparent text, p_headers jsonb) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN nullif(
    coalesce(
        '"traceparent":"'
            || substring(p_traceparent FROM '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$') || '",',
        '')
    || CASE WHEN p_headers NOT IN ('{}', 'null') THEN '"headers":' || to_json(p_headers::text) || ',' ELSE '' END,
    '');
COMMENT ON FUNCTION queen.fields_of_push IS 'Internal: trace context and headers of a push with SQL, as stored.';

-- Raises an error for the first headers that are none, or too many: as queen/http/parsing.py, with its limits.
CREATE OR REPLACE FUNCTION queen.check_headers(p_headers jsonb[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_wrong record;
BEGIN
    SELECT w.* INTO v_wrong
    FROM (
        SELECT u.ord, u.headers, e.names, e.size,
            CASE
                WHEN jsonb_typeof(u.headers) NOT IN ('object', 'null') OR e.others
                    THEN 'headers must be an object whose values are strings'
                WHEN e.unnamed THEN 'headers: a name must not be empty'
                WHEN e.names > 32 THEN format('headers has %s names, more than 32', e.names)
                WHEN e.size > 4096 THEN format('headers has %s bytes, more than 4096', e.size)
            END AS problem
        FROM unnest(p_headers) WITH ORDINALITY AS u (headers, ord)
        CROSS JOIN LATERAL (
            SELECT count(*) AS names, sum(octet_length(h.key) + octet_length(h.value #>> '{}')) AS size,
                bool_or(jsonb_typeof(h.value) <> 'string') AS others, bool_or(h.key = '') AS unnamed
            FROM jsonb_each(CASE WHEN jsonb_typeof(u.headers) = 'object' THEN u.headers ELSE '{}' END) AS h
        ) AS e
    ) AS w
    WHERE w.problem IS NOT NULL ORDER BY w.ord LIMIT 1;
    IF v_wrong.problem IS NOT NULL THEN
        RAISE EXCEPTION 'message %: %', v_wrong.ord, v_wrong.problem USING
            ERRCODE = CASE WHEN starts_with(v_wrong.problem, 'headers has') THEN 'program_limit_exceeded' ELSE 'invalid_parameter_value' END,
            DETAIL = format('They are %s.', left(v_wrong.headers::text, 100)),
            HINT = 'Give texts by name, such as ''{"type": "order"}'': at most 32, with 4096 bytes of names and values.';
    END IF;
END $$;
COMMENT ON FUNCTION queen.check_headers IS 'Internal: refuses headers that are no map of texts, or too many.';
