"""OpenTelemetry traces, by the libraries of the extra `otel`, which are loaded only if traces are asked for."""
