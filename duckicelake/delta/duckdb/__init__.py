"""Delta tables that DuckDB reads in place."""

from duckicelake.delta.duckdb.connection import DeltaConnection, connect, install

__all__ = ["DeltaConnection", "connect", "install"]
