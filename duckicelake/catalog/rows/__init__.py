"""Rows that are posted to tables, and deleted from them by keys and filters."""
