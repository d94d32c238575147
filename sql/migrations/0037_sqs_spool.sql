-- Sends of SQS that went through the spool (ADR 66): their messages get their place, and so their id, when they are stored.
ALTER TABLE simple_mq.messages ADD COLUMN sent_id uuid;
COMMENT ON COLUMN simple_mq.messages.sent_id IS
'SQS: the id that the sender was told, if it is not message_id: the message was sent while PostgreSQL was unavailable.';
ALTER TABLE simple_mq.sqs_deduplication ADD COLUMN sent_id uuid;
COMMENT ON COLUMN simple_mq.sqs_deduplication.sent_id IS 'As in simple_mq.messages.';

-- They have other arguments or columns now.
DROP FUNCTION IF EXISTS simple_mq.sqs_send_v1(uuid, uuid[], int[], text[], bytea[], text[], int[], text[], text[]);
DROP FUNCTION IF EXISTS simple_mq.sqs_receive_v1(uuid[], int[], int[], text[], int[]);
DROP FUNCTION IF EXISTS simple_mq.sqs_store(
    timestamptz, uuid[], bool[], int[], uuid[], text[], bytea[], text[], text[], text[]
);
DROP FUNCTION IF EXISTS simple_mq.sqs_peek_v1(uuid, uuid, int, bigint);
DROP FUNCTION IF EXISTS simple_mq.sqs_move_v1(int);
DROP FUNCTION IF EXISTS simple_mq.sqs_deduplicate(timestamptz, uuid[], bool[], text[], text[], uuid[]);
