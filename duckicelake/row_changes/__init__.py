"""Rows that a table's snapshots inserted, deleted and updated, read by DuckDB for programs."""
