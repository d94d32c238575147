"""Reads over several databases: the same questions as to one, asked of all and put together (ADR 68).

A figure is shown whole or not at all: while a database is unavailable, what concerns all of them is refused.
"""
