-- They have other arguments now.
DROP FUNCTION IF EXISTS queen.let_go_outbox_v1(bigint, text);
DROP FUNCTION IF EXISTS queen.ready_for_transaction(bigint, int, timestamptz);
DROP FUNCTION IF EXISTS queen.claim_for_transaction(
    bigint, bigint, queen.queues, int, bigint, bool, uuid, int, timestamptz);
