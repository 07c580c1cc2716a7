"""Materialized views: tables that hold the result of a query, and are brought up to date by refreshes. A feature."""
