"""Ways on which notices reach other workers and instances without PostgreSQL: sockets on one machine, UDP, HTTP."""
