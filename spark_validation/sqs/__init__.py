"""SQS: its journals, for audits."""
