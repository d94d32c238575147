"""Metrics for Prometheus: one registry for all workers of an instance, one module per area."""
