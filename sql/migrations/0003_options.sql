-- Retention, eviction, maximum size and encryption of queues, and the lease of the instance that runs the services.

ALTER TABLE queen.queues
ADD COLUMN retention_enabled bool NOT NULL DEFAULT false,
ADD COLUMN retention_seconds int NOT NULL DEFAULT 0,
ADD COLUMN completed_retention_seconds int NOT NULL DEFAULT 0,
ADD COLUMN ttl int NOT NULL DEFAULT 0,
ADD COLUMN max_wait_time_seconds int NOT NULL DEFAULT 0,
ADD COLUMN max_size int NOT NULL DEFAULT 0,
ADD COLUMN encryption_enabled bool NOT NULL DEFAULT false,
ADD COLUMN ever_encrypted bool NOT NULL DEFAULT false;
COMMENT ON COLUMN queen.queues.retention_enabled IS 'Switch of retention_seconds and completed_retention_seconds.';
COMMENT ON COLUMN queen.queues.ever_encrypted IS 'Whether the queue may hold encrypted messages, because it was configured so once.';

CREATE TABLE queen.push_options (
    version bigint NOT NULL
);
INSERT INTO queen.push_options VALUES (1);
COMMENT ON TABLE queen.push_options IS
'One row: the version of what a push has to know of queues (encryption_enabled, max_size). A push names the version under which it was laid out, and is refused when that is no longer the current one.';

CREATE TABLE queen.service_leader (
    id bool PRIMARY KEY DEFAULT true CHECK (id),
    holder uuid NOT NULL,
    expires_at timestamptz NOT NULL
);
COMMENT ON TABLE queen.service_leader IS
'One row at most: the worker, among those of all instances, that runs retention, eviction and clean-up, and until when.';

ALTER TABLE queen.dead_letter_queue ADD COLUMN key_id text;
COMMENT ON COLUMN queen.dead_letter_queue.key_id IS 'The key under which the payload is encrypted; NULL when it is not.';

-- Their arguments or results have changed.
DROP FUNCTION IF EXISTS queen.push_messages_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[]
);
DROP FUNCTION IF EXISTS queen.execute_transaction_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[],
    bigint[], bigint[], uuid[], text[], bigint[], bigint[], uuid[], text[], uuid[]
);
DROP FUNCTION IF EXISTS queen.execute_transaction_v1(
    uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[],
    bigint[], bigint[], uuid[], text[], bigint[], bigint[], uuid[], text[], uuid[], bigint[], text[], text[]
);
DROP FUNCTION IF EXISTS queen.replay_spool_v1(
    uuid, bigint, bigint, timestamptz, uuid, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[]
);
DROP FUNCTION IF EXISTS queen.configure_queue_v1(text, text, text, int, int, int, int, int, int, bool, bool);
DROP FUNCTION IF EXISTS queen.cycle_stream_v1(
    bigint, bigint, bigint, uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[],
    text[], text[], float8[], text, uuid, bigint, uuid, text, bool
);
DROP FUNCTION IF EXISTS queen.replay_dead_letter_v1(
    bigint, uuid, bool, bigint[], int[], bytea[], bytea[], bytea[], bigint[], int[], uuid[]
);
DROP FUNCTION IF EXISTS queen.get_message_v1(bigint, bigint, uuid);
DROP FUNCTION IF EXISTS queen.list_messages_v1(text, text, text, text, text, timestamptz, timestamptz, int, int, int);
DROP FUNCTION IF EXISTS queen.find_dead_letter_v1(bigint, bigint, bigint, text);
DROP FUNCTION IF EXISTS queen.list_dead_letters_v1(text, text, text, timestamptz, timestamptz, int, int);
DROP FUNCTION IF EXISTS queen.list_traces_v1(bigint, bigint, uuid, text, int, int);
DROP FUNCTION IF EXISTS queen.get_queue_v1(text);
DROP FUNCTION IF EXISTS queen.message_fields(bytea) CASCADE;
