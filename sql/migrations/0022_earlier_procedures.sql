-- What an upgrade replaces is kept: `queen procedures` returns to it.
CREATE TABLE queen.earlier_procedures (
    signature text PRIMARY KEY,
    definition text NOT NULL,
    replaced_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    restored bool NOT NULL DEFAULT false
);
COMMENT ON TABLE queen.earlier_procedures IS
'The definition that each procedure and helper had before it was changed last. A restored one is in use until it is reset, or until the next upgrade.';
