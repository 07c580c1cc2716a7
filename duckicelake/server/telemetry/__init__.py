"""Logs, Prometheus metrics and the files that workers share."""
