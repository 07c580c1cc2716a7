"""Delta tables that DuckDB reads in place."""

from duckicelake.delta.duckdb.connection import Connection, connect, install

__all__ = ["Connection", "connect", "install"]
