-- Public ids are numbers in the form of a UUID (RFC 9562, version 8), so that nothing has to be looked up or stored:
-- 48 bits partition, the kind, 48 bits offset. queen/log/ids.py computes the same.
CREATE OR REPLACE FUNCTION queen.message_uuid(part_id bigint, off bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN (lpad(to_hex(part_id), 12, '0') || '80018000' || lpad(to_hex(off), 12, '0'))::uuid;
COMMENT ON FUNCTION queen.message_uuid(bigint, bigint) IS 'The public id of a message, which is also its transaction id if its producer chose none.';

CREATE OR REPLACE FUNCTION queen.partition_uuid(part_id bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN (lpad(to_hex(part_id), 12, '0') || '80028000' || '000000000000')::uuid;
COMMENT ON FUNCTION queen.partition_uuid(bigint) IS 'The public id of a partition.';

CREATE OR REPLACE FUNCTION queen.queue_uuid(queue_id bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN (lpad(to_hex(queue_id), 12, '0') || '80038000' || '000000000000')::uuid;
COMMENT ON FUNCTION queen.queue_uuid(bigint) IS 'The public id of a queue.';

CREATE OR REPLACE FUNCTION queen.transaction_hash(transaction_id text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN encode(substr(sha256(convert_to(transaction_id, 'UTF8')), 1, 16), 'hex')::uuid;
COMMENT ON FUNCTION queen.transaction_hash(text) IS
    'The key of a transaction id in queen.transaction_ids: the first 16 bytes of its SHA-256.';
