-- Purpose:   whether a message exists whose transaction id the server made: the id is then its own message id.
-- Arguments: one element per message: p_part, p_off.  Returns: one row per element, in order.
CREATE OR REPLACE FUNCTION queen.find_server_made_v1(p_part bigint[], p_off bigint[])
RETURNS TABLE (ord int, found bool)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT u.ord::int, coalesce(s.made, false)
    FROM unnest(p_part, p_off) WITH ORDINALITY AS u (part_id, off, ord)
    LEFT JOIN LATERAL (
        SELECT l.last_off - l.n < u.off AND (
            l.ids IS NULL
            OR substr(l.ids, (16 * (u.off - l.last_off + l.n - 1))::int + 1, 16) = '\x00000000000000000000000000000000'
        ) AS made
        FROM queen.segments AS l WHERE l.part_id = u.part_id AND l.last_off >= u.off ORDER BY l.last_off LIMIT 1
    ) AS s ON true
    ORDER BY u.ord;
END;
COMMENT ON FUNCTION queen.find_server_made_v1 IS
    'Whether messages exist whose transaction id was created by the server.';
