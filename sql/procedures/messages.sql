-- One row a message, for people with psql and for audits that want payloads. Reads every segment it is asked about in full:
-- name a partition and a range of offsets.
CREATE OR REPLACE VIEW queen.messages AS
SELECT
    q.name AS queue,
    p.name AS partition,
    s.part_id,
    s.last_off - s.n + m.place AS off,
    queen.message_uuid(s.part_id, s.last_off - s.n + m.place) AS id,
    coalesce(m.value ->> 'transactionId', queen.message_uuid(s.part_id, s.last_off - s.n + m.place)::text) AS transaction_id,
    m.value -> 'payload' AS payload,
    m.value ->> 'traceId' AS trace_id,
    m.value ->> 'producerSub' AS producer_sub,
    s.created_at
FROM queen.segments AS s
JOIN queen.partitions AS p ON p.id = s.part_id
JOIN queen.queues AS q ON q.id = p.queue_id
CROSS JOIN LATERAL json_array_elements(convert_from(s.data, 'UTF8')::json) WITH ORDINALITY AS m (value, place);
COMMENT ON VIEW queen.messages IS 'The log with one row a message, payload included: for people, not for the hot path.';
