-- Which wait of a cursor is that of a retry: a change of the delays of a queue leaves it as it is.

ALTER TABLE queen.partition_consumers ADD COLUMN retry_at timestamptz;
COMMENT ON COLUMN queen.partition_consumers.retry_at IS
'Until then the cursor waits for a retry (retryDelay), whatever else ready_at waits for; NULL, or over, means that it does not.';
