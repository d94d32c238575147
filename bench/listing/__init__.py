"""Listings and status of a large queue, over HTTP."""
