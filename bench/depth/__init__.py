"""Polls of a deep and of a shallow simple-mq queue, side by side."""
