"""DuckLake and the side tables: here the pure models, in the folders SQL."""
