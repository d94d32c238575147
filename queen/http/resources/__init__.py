"""One falcon resource for each group of routes."""
