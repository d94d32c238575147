-- An acknowledgement that ends a lease may lease the next messages of the partition to the worker at once, which hands them to the
-- next pop (ADR 48). Until prefetched_until they may be in a worker's hands only; later they are a consumer's, or given back.
ALTER TABLE queen.partition_consumers ADD COLUMN prefetched_until timestamptz;
COMMENT ON COLUMN queen.partition_consumers.prefetched_until IS
'Until when a worker may hold what is under the lease before a consumer has asked for it; NULL: a pop had asked.';
CREATE INDEX partition_consumers_prefetched ON queen.partition_consumers (grp_id, prefetched_until)
WHERE prefetched_until IS NOT NULL;
COMMENT ON INDEX queen.partition_consumers_prefetched IS
'For a pop that finds nothing, and for who changes what is delivered: whether a worker may hold something.';

-- Their arguments have changed.
DROP FUNCTION IF EXISTS queen.wake(bigint[], bigint[], timestamptz);
DROP FUNCTION IF EXISTS queen.push_messages_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint, bigint[]
);
DROP FUNCTION IF EXISTS queen.commit_group_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint, bigint[],
    bigint[], bigint[], uuid[], text[], bigint[], bigint[], uuid[], text[],
    int[], int[], uuid[], int[], int[], bigint[], bigint[], bigint, bigint, bigint[], text[]
);
