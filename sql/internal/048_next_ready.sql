-- Plans: ADR 38 says why part_id + 0.

-- When the next cursor becomes ready by itself: of one partition, or of any of the group (null: there is none). A
-- cursor with nothing to deliver that could not be parked, because a push holds its partition, counts as parked: the
-- push will be heard of.
CREATE OR REPLACE FUNCTION queen.next_ready(p_grp bigint, p_part bigint, p_unparked bigint[], p_now timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_low timestamptz;
    v_ready_at timestamptz;
    v_prefetched timestamptz;
    v_held timestamptz;
BEGIN
    IF p_part IS NOT NULL THEN
        RETURN (
            SELECT CASE
                WHEN c.ready_at <= p_now AND c.part_id = ANY(p_unparked) THEN 'infinity'
                WHEN c.prefetched_until > p_now THEN least(c.ready_at, c.prefetched_until)
                ELSE c.ready_at
            END
            FROM queen.partition_consumers AS c
            WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1);
    END IF;
    v_low := queen.low_water(p_grp, p_now);
    SELECT c.ready_at INTO v_ready_at FROM queen.partition_consumers AS c
    WHERE c.grp_id = p_grp AND c.ready_at BETWEEN v_low AND p_now AND c.ready_at < 'infinity'
        AND c.part_id <> ALL(coalesce(p_unparked, '{}'))
    ORDER BY c.ready_at, c.part_id + 0 LIMIT 1;
    IF FOUND THEN
        RETURN v_ready_at;
    END IF;
    IF split_part(current_setting(queen.name_of_mark(p_grp), true), ' ', 11) <> '' THEN
        -- A transaction holds a cursor for long, and says nothing when it ends.
        v_held := p_now + interval '0.1 s';
    END IF;
    SELECT c.prefetched_until INTO v_prefetched FROM queen.partition_consumers AS c
    WHERE c.grp_id = p_grp AND c.prefetched_until > p_now ORDER BY c.prefetched_until LIMIT 1;
    RETURN least(v_prefetched, v_held, queen.next_wait(p_grp, p_now));
END $$;
COMMENT ON FUNCTION queen.next_ready IS
    'Internal: the time at which the next cursor of a group becomes ready without a push.';

-- True if messages of a group, or of one of its partitions, were prefetched so recently that the worker may still be
-- about to release them. It does so before prefetched_until, but a busy worker is late.
CREATE OR REPLACE FUNCTION queen.was_prefetched(p_grp bigint, p_part bigint, p_now timestamptz) RETURNS bool
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_until timestamptz;
BEGIN
    IF p_part IS NULL THEN
        SELECT c.prefetched_until INTO v_until FROM queen.partition_consumers AS c
        WHERE c.grp_id = p_grp AND c.prefetched_until > p_now - interval '0.25 s' AND c.lease IS NOT NULL
        ORDER BY c.prefetched_until LIMIT 1;
    ELSE
        SELECT CASE WHEN c.lease IS NOT NULL THEN c.prefetched_until END INTO v_until FROM queen.partition_consumers AS c
        WHERE c.part_id = p_part AND c.grp_id = p_grp ORDER BY c.ver DESC LIMIT 1;
    END IF;
    RETURN coalesce(v_until > p_now - interval '0.25 s', false);
END $$;
COMMENT ON FUNCTION queen.was_prefetched IS 'Internal: whether a worker may still be about to release prefetched messages.';

-- The time at which the next waiting cursor of a group becomes ready, or a time before which none does (null: never).
-- While some transaction holds a snapshot, the index between now and then keeps the ends of all leases that ended
-- early. So the search takes intervals that become longer, and stops after one in which it read much in vain. Then the
-- session trusts its finding for a moment so short that no lease or delay given meanwhile can end in it.
CREATE OR REPLACE FUNCTION queen.next_wait(p_grp bigint, p_now timestamptz) RETURNS timestamptz
LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_name CONSTANT text := 'queen.next_wait_' || p_grp % 1000;
    -- In seconds since 1970: what was found, and from when until when that is believed. And the group.
    v_stored float8[] := string_to_array(nullif(current_setting(v_name, true), ''), ' ')::float8[];
    v_now CONSTANT float8 := date_part('epoch', p_now);
    v_much CONSTANT bigint := pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass) + 30;
    v_ready_at timestamptz;
    v_from timestamptz := p_now;
    v_to timestamptz;
BEGIN
    IF v_stored[4] = p_grp AND v_stored[1] > v_now AND v_now >= v_stored[2] AND v_now < v_stored[3] THEN
        RETURN to_timestamp(v_stored[1]);
    END IF;
    FOREACH v_to IN ARRAY ARRAY[p_now + interval '0.5 s', p_now + interval '20 s', p_now + interval '15 min', 'infinity'] LOOP
        SELECT c.ready_at INTO v_ready_at FROM queen.partition_consumers AS c
        WHERE c.grp_id = p_grp AND c.ready_at > v_from AND c.ready_at <= v_to AND c.ready_at < 'infinity'
        ORDER BY c.ready_at, c.part_id + 0 LIMIT 1;
        IF pg_stat_get_xact_blocks_fetched('queen.partition_consumers'::regclass) > v_much AND v_to < 'infinity' THEN
            v_ready_at := coalesce(v_ready_at, v_to);
            v_stored := ARRAY[date_part('epoch', v_ready_at), v_now, v_now + 0.25, p_grp];
            PERFORM set_config(v_name, array_to_string(v_stored, ' '), false);
        END IF;
        EXIT WHEN v_ready_at IS NOT NULL;
        v_from := v_to;
    END LOOP;
    RETURN v_ready_at;
END $$;
COMMENT ON FUNCTION queen.next_wait IS 'Internal: the time until which no waiting cursor of a group becomes ready.';
