"""PURE. Queries and views of one SQL dialect in the other."""
