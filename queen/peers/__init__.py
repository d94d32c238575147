"""Transports of notifications besides PostgreSQL: Unix sockets on one machine, UDP, HTTP."""
