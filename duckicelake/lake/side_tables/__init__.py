"""The side tables in Postgres: what Iceberg clients see beyond DuckLake's own tables."""
