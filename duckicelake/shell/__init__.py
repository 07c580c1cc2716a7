"""A SQL shell for lakes: this server's, those of other Iceberg REST catalogs, and DuckLake's."""
