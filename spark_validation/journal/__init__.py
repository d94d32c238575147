"""Journals: the calls of the agents of a load test, and their answers."""
