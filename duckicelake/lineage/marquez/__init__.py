"""Lineage by Marquez's API, as far as Marquez's page needs it."""
