"""`duckicelake ingest-rows`."""
