"""Background services: what happens without a request, in one worker of all instances at a time."""
