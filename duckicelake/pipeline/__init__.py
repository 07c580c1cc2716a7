"""Spark jobs: load, import, compare and maintain tables, and read their changes."""
