-- UUID version 7 (RFC 9562, section 5.7): 48 bits milliseconds, 12 bits for the microseconds within, then a number that
-- rises within a call (20 bits) and 40 bits taken from the name of the call. So ids sort by time, and then by position
-- in the call.
CREATE OR REPLACE FUNCTION simple_mq.uuid_at(p_time timestamptz, p_tail text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN (
    lpad(to_hex((extract(EPOCH FROM p_time) * 1000000)::bigint / 1000), 12, '0')
    || '7' || lpad(to_hex((extract(EPOCH FROM p_time) * 1000000)::bigint % 1000 * 4), 3, '0')
    || p_tail
)::uuid;
COMMENT ON FUNCTION simple_mq.uuid_at IS
    'Internal: the UUID version 7 of a time, with the given last 16 hexadecimal digits.';

CREATE OR REPLACE FUNCTION simple_mq.message_id(p_time timestamptz, p_flush uuid, p_place int) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
RETURN simple_mq.uuid_at(p_time, '8' || lpad(to_hex(p_place), 5, '0') || substr(md5(p_flush::text || p_place), 1, 10));
COMMENT ON FUNCTION simple_mq.message_id IS
    'Internal: the id of a message by its position in an enqueue call; the same when the call is sent again.';

CREATE OR REPLACE FUNCTION simple_mq.dlq_id(p_queue uuid) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT
AS $$
    SELECT CASE WHEN substr(p_queue::text, 15, 1) = '8'
            -- The last byte is the slot of the shard of both (ADR 68).
            THEN overlay(overlay(i.id::text PLACING '8' FROM 15) PLACING right(p_queue::text, 2) FROM 35)::uuid
            ELSE i.id END
    FROM (SELECT md5(p_queue::text || '-dlq') AS hex) AS d
    CROSS JOIN LATERAL (SELECT substr('89ab89ab89ab89ab', strpos('0123456789abcdef', substr(d.hex, 17, 1)), 1) AS variant) AS v
    CROSS JOIN LATERAL (
        SELECT (substr(d.hex, 1, 12) || '3' || substr(d.hex, 14, 3) || v.variant || substr(d.hex, 18))::uuid AS id
    ) AS i;
$$;
COMMENT ON FUNCTION simple_mq.dlq_id IS
    'The id of a queue''s dead-letter queue: UUID version 3 of "<queue id>-dlq" without a namespace, or that as a version '
    '8 with the slot of the shard, if the queue has such an id. All servers compute the same id.';
