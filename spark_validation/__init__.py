"""Audits of the whole log and of client journals with PySpark. Installed under the name ``queen_audit``."""
