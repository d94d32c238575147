-- Push where some transaction ids are stored already, as it was until commit cc84297.
--
-- Each message is compared with an array of all duplicates (`<> ALL`, `count(*) FROM unnest`): n * n. And once a
-- segment all hashes of the call are read: partitions * n.
--
-- A mutant of G-COST-1: tests/integration/test_growth.py puts it in place of the product's and must notice. The first
-- function is the old one under a name of its own, on the tables of today. The second one attaches it: it has the name
-- and the arguments by which the product calls that step. A change of tables or names has to adapt what does not fit
-- any more, and leaves the fault in (docs/adr/0043-growth-tests.md).
CREATE OR REPLACE FUNCTION queen.old_append_without_duplicates(
    p_flush uuid, p_now timestamptz,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[]
) RETURNS TABLE (part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[])
LANGUAGE plpgsql
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_segment record;
    v_kept int;
    v_data bytea;
    v_ids bytea;
    v_ends bytea;
    v_next bigint;
BEGIN
    FOR v_segment IN
        SELECT u.part_id, u.n, u.data, u.ends, u.ids, d.pos, d.off
        FROM unnest(p_part, p_n, p_data, p_ends, p_ids) AS u (part_id, n, data, ends, ids)
        LEFT JOIN LATERAL (
            SELECT array_agg(h.pos ORDER BY h.pos) AS pos, array_agg(t.off ORDER BY h.pos) AS off
            FROM unnest(p_hash_part, p_hash_pos, p_hash) AS h (part_id, pos, hash)
            JOIN queen.transaction_ids AS t ON t.part_id = ANY(ARRAY[h.part_id]) AND t.hash = ANY(ARRAY[h.hash])
            WHERE h.part_id = u.part_id
        ) AS d ON true
    LOOP
        v_kept := v_segment.n - coalesce(cardinality(v_segment.pos), 0);
        v_data := v_segment.data;
        v_ids := v_segment.ids;
        v_ends := v_segment.ends;
        IF v_segment.pos IS NOT NULL AND v_kept > 0 THEN
            SELECT
                '['::bytea || string_agg(m.message, ','::bytea ORDER BY m.pos) || ']'::bytea,
                string_agg(int4send(m.ends::int), ''::bytea ORDER BY m.pos),
                string_agg(m.id, ''::bytea ORDER BY m.pos)
            INTO v_data, v_ends, v_ids
            FROM (
                SELECT
                    e.pos, e.message, substr(v_segment.ids, 16 * e.pos + 1, 16) AS id,
                    sum(octet_length(e.message) + 1) OVER (ORDER BY e.pos) AS ends
                FROM generate_series(0, v_segment.n - 1) AS i (pos)
                CROSS JOIN LATERAL queen.message_at(v_segment.data, v_segment.ends, i.pos) AS e
                WHERE i.pos <> ALL(v_segment.pos)
            ) AS m;
        END IF;
        SELECT l.next_off + v_kept, greatest(l.last_at, p_now) INTO v_next, created_at
        FROM queen.log_ends AS l WHERE l.part_id = v_segment.part_id;
        IF v_kept > 0 THEN
            INSERT INTO queen.segments (part_id, last_off, n, created_at, flush, ids, ends, data)
            VALUES (v_segment.part_id, v_next - 1, v_kept, created_at, p_flush, v_ids, v_ends, v_data);
            INSERT INTO queen.transaction_ids (part_id, hash, off)
            SELECT h.part_id, h.hash, v_next - v_kept + h.pos
                - (SELECT count(*) FROM unnest(v_segment.pos) AS gone (pos) WHERE gone.pos < h.pos)
            FROM unnest(p_hash_part, p_hash_pos, p_hash) AS h (part_id, pos, hash)
            WHERE h.part_id = v_segment.part_id AND (v_segment.pos IS NULL OR h.pos <> ALL(v_segment.pos));
        END IF;
        part_id := v_segment.part_id;
        first_off := v_next - v_kept;
        dup_pos := v_segment.pos;
        dup_off := v_segment.off;
        RETURN NEXT;
    END LOOP;
END $$;

-- Attached: the product has this step within the push, so this is a push that has nothing else, for flushes sent once
-- to queues without a maximum size.
CREATE OR REPLACE FUNCTION queen.push_messages_v1(
    p_flush uuid, p_again bool,
    p_part bigint[], p_n int[], p_data bytea[], p_ends bytea[], p_ids bytea[],
    p_hash_part bigint[], p_hash_pos int[], p_hash uuid[], p_version bigint, p_limited bigint[],
    p_besides bigint[] DEFAULT NULL
) RETURNS TABLE (
    part_id bigint, first_off bigint, created_at timestamptz, dup_pos int[], dup_off bigint[], room bigint
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
BEGIN
    PERFORM 1 FROM queen.partition_locks AS l WHERE l.part_id = ANY(p_part) ORDER BY l.part_id FOR NO KEY UPDATE;
    RETURN QUERY SELECT a.*, NULL::bigint FROM queen.old_append_without_duplicates(
        p_flush, queen.clock(), p_part, p_n, p_data, p_ends, p_ids, p_hash_part, p_hash_pos, p_hash) AS a;
END $$;
