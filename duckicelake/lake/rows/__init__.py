"""Rows that DuckLake keeps in Postgres instead of files (`ducklake-facts.md` §6)."""
