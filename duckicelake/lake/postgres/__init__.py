"""The seam to Postgres: connections, transactions, pipelines, named SQL and notices."""
