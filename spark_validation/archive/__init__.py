"""The archive: the log as Parquet files, which retention does not remove. Audits read both together."""
