"""`duckicelake ingest-rows`: rows from pipes and files."""
