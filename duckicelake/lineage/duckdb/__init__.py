"""DuckDB's connection, with events of OpenLineage on what its statements read and wrote."""

from duckicelake.lineage.duckdb.connection import LineageConnection, connect

__all__ = ["LineageConnection", "connect"]
