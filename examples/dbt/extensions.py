"""Install DuckDB's extensions from their packages. Where DuckDB's own server is reachable, dbt does it."""

from duckdb_extensions import import_extension

for name in ("ducklake", "postgres_scanner"):
    import_extension(name)
