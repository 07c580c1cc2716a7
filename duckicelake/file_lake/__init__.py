"""Lakes whose catalog is a DuckDB or SQLite file, as DuckDB alone makes them."""
