"""Deletes of rows in the forms that Iceberg has of them, and in DuckLake's."""
