"""HTTP: the only place that knows falcon."""
