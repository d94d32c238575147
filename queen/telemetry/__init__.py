"""An optional extra, OpenTelemetry: nothing is imported unless ``QUEEN_OTEL_ENABLED`` is set (docs/telemetry.md)."""
