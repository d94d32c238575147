"""The second interface, simple-mq: its operations, requests, handlers, storage, metrics and background jobs.

The engine does not know it: ``queen/main.py`` hands over its job specs, and ``queen/catalogue.py`` its operations.
"""
