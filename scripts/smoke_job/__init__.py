"""A few dozen requests that tell within seconds whether a server on Postgres and S3 does what it should."""
