-- How far spool files have been replayed, and which installation a spool belongs to.

CREATE TABLE queen.spool_files (
    file uuid PRIMARY KEY,
    replayed bigint NOT NULL,
    replayed_at timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE queen.spool_files IS
'How many push requests of a spool file are stored; written in the transaction that stores them, so that no crash repeats or skips one. One row a file that is being replayed.';

INSERT INTO queen.system_state (key, value, updated_at)
VALUES ('installation', to_jsonb(gen_random_uuid()), clock_timestamp());
