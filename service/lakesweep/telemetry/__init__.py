"""Log lines, Prometheus series and traces. Telemetry observes, it never decides."""
