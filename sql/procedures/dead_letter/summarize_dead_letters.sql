-- Purpose:   of the newest 1000 dead letters, of one queue if it is named: how many partitions they are of, and their
--            five commonest error texts (their first 1000 characters) with how many have them.
CREATE OR REPLACE FUNCTION queen.summarize_dead_letters_v1(
    p_queue text, OUT partitions bigint, OUT error text[], OUT number bigint[]
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    WITH newest AS MATERIALIZED (
        SELECT d.part_id, left(d.error, 1000) AS error
        FROM queen.find_dead_letters(p_queue, NULL, NULL, NULL, NULL, 1000, 1000, 0) AS f
        JOIN queen.dead_letter_queue AS d ON d.id = f.id
    ), common AS (
        SELECT n.error, count(*) AS number FROM newest AS n GROUP BY n.error ORDER BY count(*) DESC, n.error LIMIT 5
    )
    SELECT
        (SELECT count(DISTINCT n.part_id) FROM newest AS n),
        (SELECT array_agg(c.error ORDER BY c.number DESC, c.error) FROM common AS c),
        (SELECT array_agg(c.number ORDER BY c.number DESC, c.error) FROM common AS c);
END;
COMMENT ON FUNCTION queen.summarize_dead_letters_v1 IS
    'Partitions and most frequent errors of the newest dead letters.';
