-- The W3C trace context of a message, kept from enqueue to poll. In the log it stands in the segment (queen/core/segment.py).
ALTER TABLE simple_mq.messages ADD COLUMN traceparent text COLLATE "C";
COMMENT ON COLUMN simple_mq.messages.traceparent IS
'W3C trace context of its enqueue. NULL, which takes no room, unless the server keeps those (QUEEN_OTEL_ENABLED).';

-- Their arguments and columns change; the new ones are made at every start.
DROP FUNCTION IF EXISTS simple_mq.enqueue_v1(uuid, uuid[], int[], text[], text[]);
DROP FUNCTION IF EXISTS simple_mq.store(timestamptz, uuid, uuid[], text[], int[], text[], text[], bool);
DROP FUNCTION IF EXISTS simple_mq.dequeue_v1(uuid[], int[]);
