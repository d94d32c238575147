-- Where a partition lives, if an installation has several databases (ADR 68). queen/core/placement.py computes the same.
CREATE OR REPLACE FUNCTION queen.home_of(p_queue text, p_partition text, p_version int) RETURNS text
LANGUAGE sql STABLE STRICT
RETURN coalesce(
    (SELECT s.name FROM queen.shards AS s WHERE s.name = substring(p_partition FROM '@([^@]*)$')),
    (
        SELECT s.name FROM queen.shards AS s
        WHERE s.added_in <= p_version AND (s.drained_in IS NULL OR s.drained_in > p_version)
        ORDER BY md5(
            s.name || E'\x1f'
            || coalesce((SELECT q.colocate_with FROM queen.queues AS q WHERE q.name = p_queue), p_queue)
            || E'\x1f' || p_partition
        ) COLLATE "C" DESC LIMIT 1
    )
);
COMMENT ON FUNCTION queen.home_of IS
    'The name of the shard on which a version of the list places a partition: the name after @, or by rendezvous hashing.';

-- Whether this database may make a partition: alone, or as the home of it in every version of the list that is in use,
-- unless it is being moved.
-- The lock keeps a change of the list out until the commit.
CREATE OR REPLACE FUNCTION queen.is_home(p_queue text, p_partition text) RETURNS bool
LANGUAGE plpgsql
AS $$
DECLARE
    v_list queen.shard_list;
    v_own text;
BEGIN
    SELECT * INTO v_list FROM queen.shard_list AS l WHERE l.id FOR SHARE;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    SELECT s.name INTO v_own FROM queen.shards AS s WHERE s.own;
    RETURN v_own = queen.home_of(p_queue, p_partition, v_list.opened)
        AND v_own = queen.home_of(p_queue, p_partition, v_list.version)
        AND NOT EXISTS (
            SELECT 1 FROM queen.moved_partitions AS m JOIN queen.queues AS q ON q.id = m.queue_id
            WHERE q.name = p_queue AND m.partition = p_partition AND m.state IN ('awaited', 'sealed')
        );
END $$;
COMMENT ON FUNCTION queen.is_home IS 'Internal: whether a partition may be made in this database.';

-- The names of partitions of this database for pushes with SQL: a partition that is or belongs elsewhere becomes one of
-- this database, because the caller's transaction is here.
CREATE OR REPLACE FUNCTION queen.local_partitions(p_queue text, p_partitions text[], p_n int) RETURNS text[]
LANGUAGE plpgsql
AS $$
DECLARE
    v_own text;
BEGIN
    SELECT '@' || s.name INTO v_own FROM queen.shards AS s WHERE s.own;
    RETURN ARRAY(
        SELECT CASE WHEN l.here THEN u.partition ELSE u.partition || v_own END
        FROM (
            SELECT coalesce(g.partition, 'Default') AS partition, g.ord
            FROM unnest(coalesce(p_partitions, array_fill('Default'::text, ARRAY[p_n]))) WITH ORDINALITY AS g (partition, ord)
        ) AS u
        JOIN (
            SELECT n.name, queen.is_home(p_queue, n.name) OR EXISTS (
                SELECT 1 FROM queen.partitions AS p JOIN queen.queues AS q ON q.id = p.queue_id
                WHERE q.name = p_queue AND p.name = n.name
            ) AS here
            FROM (SELECT DISTINCT coalesce(d.name, 'Default') AS name
                FROM unnest(coalesce(p_partitions, ARRAY['Default'])) AS d (name)) AS n
        ) AS l ON l.name = u.partition
        ORDER BY u.ord);
END $$;
COMMENT ON FUNCTION queen.local_partitions IS 'Internal: the partitions of this database to which SQL pushes.';
