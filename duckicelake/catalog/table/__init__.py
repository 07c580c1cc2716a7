"""A table as it is now: load it, catch up DuckDB's changes, write its metadata files."""
