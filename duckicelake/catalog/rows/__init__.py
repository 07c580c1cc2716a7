"""Rows posted to tables, and rows deleted by keys and filters."""
