"""Commands for queues of SQS."""
