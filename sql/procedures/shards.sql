-- Purpose:   stores the list of shards; an older one than the stored list changes nothing.
-- Arguments: one element per shard: p_slot, p_name, p_added, p_drained (null: it takes new partitions)
--            p_retired whether it has no partitions any more
--            p_own     the name of this database
--            p_version, p_opened  as in queen.shard_list
-- Returns:   nothing.
-- Errors:    QN007: this database is another shard already, or a slot has another name.
-- Locks:     the row of queen.shard_list, for which calls that make partitions wait.
-- Writes:    shards, shard_list; the sequences of ids begin in the range of the slot.
CREATE OR REPLACE FUNCTION queen.store_shards_v1(
    p_slot int[], p_name text[], p_added int[], p_drained int[], p_retired bool[], p_own text, p_version int,
    p_opened int
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    v_list queen.shard_list;
    v_slot int;
    v_sequence regclass;
BEGIN
    PERFORM pg_advisory_xact_lock(487215785330);
    SELECT * INTO v_list FROM queen.shard_list FOR UPDATE;
    IF EXISTS (SELECT 1 FROM queen.shards AS s WHERE s.own AND s.name <> p_own) THEN
        RAISE EXCEPTION 'this database is the shard %, not %',
            (SELECT s.name FROM queen.shards AS s WHERE s.own), p_own USING ERRCODE = 'QN007';
    END IF;
    IF EXISTS (
        SELECT 1 FROM queen.shards AS s JOIN unnest(p_slot, p_name) AS u (slot, name) ON u.slot = s.slot
        WHERE s.name <> u.name
    ) THEN
        RAISE EXCEPTION 'a shard with this number has another name here' USING ERRCODE = 'QN007';
    END IF;
    IF (v_list.version, v_list.opened) >= (p_version, p_opened) THEN
        RETURN;
    END IF;
    INSERT INTO queen.shards AS s (slot, name, own, added_in, drained_in, retired)
    SELECT u.slot, u.name, u.name = p_own, u.added, u.drained, u.retired
    FROM unnest(p_slot, p_name, p_added, p_drained, p_retired) AS u (slot, name, added, drained, retired)
    ON CONFLICT (slot) DO UPDATE
    SET added_in = excluded.added_in, drained_in = excluded.drained_in, retired = excluded.retired;
    INSERT INTO queen.shard_list AS l (version, opened) VALUES (p_version, p_opened)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version, opened = excluded.opened;
    IF v_list IS NULL THEN
        SELECT s.slot INTO v_slot FROM queen.shards AS s WHERE s.own;
        FOR v_sequence IN
            SELECT c.oid::regclass FROM pg_class AS c
            WHERE c.relnamespace = 'queen'::regnamespace AND c.relkind = 'S' AND v_slot > 0
        LOOP
            PERFORM setval(v_sequence, (v_slot::bigint << 40) + 1, false);
        END LOOP;
    END IF;
END $$;
COMMENT ON FUNCTION queen.store_shards_v1 IS 'Stores the list of the databases of an installation.';

-- Purpose:   the list of shards, as this database knows it.
-- Returns:   one row per shard; none: this database is used alone.
CREATE OR REPLACE FUNCTION queen.read_shards_v1() RETURNS TABLE (
    slot int, name text, own bool, added_in int, drained_in int, retired bool, version int, opened int
)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT s.slot, s.name, s.own, s.added_in, s.drained_in, s.retired, l.version, l.opened
    FROM queen.shards AS s CROSS JOIN queen.shard_list AS l ORDER BY s.slot;
END;
COMMENT ON FUNCTION queen.read_shards_v1 IS 'The databases of an installation that has several.';
