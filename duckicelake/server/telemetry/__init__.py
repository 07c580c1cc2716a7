"""What operators see: logs, Prometheus metrics and traces."""
