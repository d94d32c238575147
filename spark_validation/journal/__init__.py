"""Journals: what the agents of a load test asked, and what they were told."""
