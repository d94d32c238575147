"""The log as Parquet files that outlive what retention removes, and that audits read as one with the log."""
