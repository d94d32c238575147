-- One row per message, for people with psql and for audits that want payloads. It reads whole segments, so name a
-- partition and a range of offsets.
CREATE OR REPLACE VIEW queen.messages AS
SELECT
    q.name AS queue,
    p.name AS partition,
    s.part_id,
    s.last_off - s.n + 1 + i.pos AS off,
    queen.message_uuid(s.part_id, s.last_off - s.n + 1 + i.pos) AS id,
    coalesce(f.transaction_id, queen.message_uuid(s.part_id, s.last_off - s.n + 1 + i.pos)::text) AS transaction_id,
    f.payload,
    f.trace_id,
    f.producer_sub,
    s.created_at,
    f.key_id,
    queen.message_headers(m.message) AS headers
FROM queen.segments AS s
JOIN queen.partitions AS p ON p.id = s.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
CROSS JOIN LATERAL generate_series(0, s.n - 1) AS i (pos)
CROSS JOIN LATERAL queen.message_at(s.data, s.ends, i.pos) AS m
CROSS JOIN LATERAL queen.message_fields(m.message) AS f
LEFT JOIN queen.deleted_messages AS d ON d.part_id = s.part_id
WHERE NOT coalesce(d.offsets @> (s.last_off - s.n + 1 + i.pos), false);
COMMENT ON VIEW queen.messages IS
    'The log with one row per message, with payload: for people, not for the hot path. If key_id is set, the '
    'payload is encrypted.';
