"""The audits beside logs of 1 to 100 million messages, and how fast the log is read."""
