-- Counts the messages in flight at each receive.
CREATE OR REPLACE FUNCTION simple_mq.sqs_in_flight(p_store uuid) RETURNS bigint
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (SELECT count(*) FROM simple_mq.messages AS m WHERE m.queue_id = p_store AND m.state = 't');
END $$;
