"""Lineage as Marquez's API tells it."""
