"""Answers without an end: changes as server-sent events."""
