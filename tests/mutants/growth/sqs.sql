-- The purge of a queue of SQS, if it removed the messages itself.
--
-- A mutant of G-COST-1: tests/integration/test_growth.py puts it in place of the product's and must notice.
CREATE OR REPLACE FUNCTION simple_mq.sqs_drop_store(p_store uuid) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    DELETE FROM simple_mq.messages AS m WHERE m.queue_id = p_store;
    DELETE FROM simple_mq.counts AS c WHERE c.queue_id = p_store;
    DELETE FROM simple_mq.heads AS h WHERE h.queue_id = p_store;
END $$;
