"""The seam to Postgres: connections, transactions, pipelines, named SQL, notifications, the embedded server."""
