"""`duckicelake lineage`."""
