"""OpenTelemetry traces, with the optional libraries of the extra `otel`."""
