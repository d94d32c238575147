"""The log: batches of messages as requests carry them and segments store them, and their pure rules."""
