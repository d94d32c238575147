-- Purpose:   says what a seek of a group would do, without doing it.
-- Arguments: as queen.seek_group_v1
-- Returns:   partitions: cursors that it would move; skipped: undone messages that would be done; repeated: done ones
--            that are still stored and would be delivered again. Partitions in which the group has no cursor yet are
--            not counted.
-- Reads:     every cursor of the group on the queue, or that of the partition.
CREATE OR REPLACE FUNCTION queen.preview_seek_v1(
    p_queue text, p_group text, p_partition text, p_to_end bool, p_since timestamptz,
    OUT partitions bigint, OUT skipped bigint, OUT repeated bigint
)
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_queue bigint := (SELECT q.id FROM queen.queues AS q WHERE q.name = p_queue);
    v_grp bigint := (SELECT g.id FROM queen.consumer_groups_metadata AS g WHERE g.queue_id = v_queue AND g.name = p_group);
    v_parts bigint[] := ARRAY(
        SELECT p.id FROM queen.partitions AS p
        WHERE p.queue_id = v_queue AND (p_partition IS NULL OR p.name = p_partition));
BEGIN
    SELECT count(*), coalesce(sum(queen.range_size(m.skipped)), 0), coalesce(sum(queen.range_size(m.repeated)), 0)
    INTO partitions, skipped, repeated
    FROM queen.places(
        v_parts, CASE WHEN p_to_end THEN 'infinity' ELSE coalesce(p_since, '-infinity') END) AS s
    CROSS JOIN LATERAL (
        SELECT c.acked, coalesce(c.ahead, '{}') AS ahead FROM queen.partition_consumers AS c
        WHERE c.part_id = s.part_id AND c.grp_id = v_grp ORDER BY c.ver DESC LIMIT 1
    ) AS c
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT l.last_off - l.n + 1 FROM queen.segments AS l
            WHERE l.part_id = s.part_id AND l.n > 0 ORDER BY l.last_off LIMIT 1
        ), s.last + 1) AS first_off
    ) AS f
    CROSS JOIN LATERAL (
        SELECT
            queen.offsets_between(greatest(c.acked + 1, f.first_off), s.acked) - c.ahead AS skipped,
            (queen.offsets_between(f.first_off, c.acked) + c.ahead)
                * queen.offsets_between(greatest(s.acked + 1, f.first_off), 9223372036854775806) - coalesce(s.ahead, '{}') AS repeated
    ) AS m;
END $$;
COMMENT ON FUNCTION queen.preview_seek_v1 IS 'How many messages a seek of a group would skip, and repeat.';

-- The offsets from one to another, both included; none if the second is smaller.
CREATE OR REPLACE FUNCTION queen.offsets_between(p_first bigint, p_last bigint) RETURNS int8multirange
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN p_last >= p_first THEN int8multirange(int8range(p_first, p_last, '[]'))
    ELSE '{}'::int8multirange
END;
COMMENT ON FUNCTION queen.offsets_between IS 'Internal: a range of offsets.';
