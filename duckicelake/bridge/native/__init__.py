"""PURE. DuckDB's own changes as Iceberg snapshots."""
