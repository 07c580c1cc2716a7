"""PURE. The commit of an Iceberg client as a change of DuckLake's rows and of the side tables."""
