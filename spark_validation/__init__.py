"""Audits of the whole log and of client journals with PySpark. The command is ``queen audit``."""
