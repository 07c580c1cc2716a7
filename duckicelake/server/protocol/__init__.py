"""Connections and HTTP/1.1: limits, timeouts, cached responses."""
