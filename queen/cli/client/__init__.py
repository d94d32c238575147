"""A server's operations for people and scripts: one module a command. Knows no server: only its HTTP interface."""
