"""DuckDB and PyIceberg take turns on one lake in Postgres and S3; after every turn both must read the same rows."""
