-- A pop is given low-water marks and returns them: two arguments more.
DROP FUNCTION IF EXISTS queen.pop_unified_batch_v1(
    int[], int[], uuid[], int[], int[], bigint[], bigint[], bigint, bigint
);
DROP FUNCTION IF EXISTS queen.commit_group_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint, bigint[],
    bigint[], bigint[], uuid[], text[], bigint[], bigint[], uuid[], text[],
    int[], int[], uuid[], int[], int[], bigint[], bigint[], bigint, bigint
);
