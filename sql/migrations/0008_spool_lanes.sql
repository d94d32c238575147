-- The requests of a spool file are stored side by side in lanes, and each lane has its own position.

ALTER TABLE queen.spool_files RENAME TO spool_lanes;
ALTER TABLE queen.spool_lanes RENAME COLUMN file TO lane;
ALTER INDEX queen.spool_files_pkey RENAME TO spool_lanes_pkey;
COMMENT ON TABLE queen.spool_lanes IS
'How many push requests of a lane of a spool file are stored; written in the transaction that stores them, so that no crash repeats or skips one. One row a lane of the file that is being replayed.';

DROP FUNCTION IF EXISTS queen.forget_spool_file_v1(uuid);
DROP FUNCTION IF EXISTS queen.replay_spool_v1(
    uuid, bigint, bigint, timestamptz, uuid, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[], bigint
);
