"""The spool beside the path of a quiet day: pushes a second, and how fast the replay is."""
