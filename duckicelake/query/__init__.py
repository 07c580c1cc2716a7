"""Queries in DuckDB's SQL over HTTP: checked by their syntax trees, run in processes of their own. A feature."""
