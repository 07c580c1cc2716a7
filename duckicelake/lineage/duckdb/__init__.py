"""DuckDB's connection, whose statements tell OpenLineage what they read and wrote."""

from duckicelake.lineage.duckdb.connection import LineageConnection, connect

__all__ = ["LineageConnection", "connect"]
