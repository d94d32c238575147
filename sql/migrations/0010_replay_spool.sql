-- The procedure that replays the spool was given an argument, p_last; sql/procedures makes it anew.

DROP FUNCTION IF EXISTS queen.replay_spool_v1(
    uuid, bigint, bigint, timestamptz, uuid, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint
);
