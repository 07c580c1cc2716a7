"""DuckDB's connection, whose statements tell OpenLineage what they read and wrote."""

from duckicelake.lineage.duckdb.connection import Connection, connect

__all__ = ["Connection", "connect"]
