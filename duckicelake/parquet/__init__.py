"""Parquet files of this machine, through DuckDB: footers, schemas, deletes, inlined rows, copies."""
