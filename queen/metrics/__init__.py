"""What the server tells Prometheus: a registry for all workers of an instance, and one module an area."""
