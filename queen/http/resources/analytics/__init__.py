"""``/api/v1/analytics/…``: series of what workers and queues did."""
