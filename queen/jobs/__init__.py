"""Background jobs: they run in one worker of all instances at a time."""
