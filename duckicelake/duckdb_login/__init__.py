"""Short-lived logins to Postgres by which DuckDB reads what a caller may read, and nothing else."""
