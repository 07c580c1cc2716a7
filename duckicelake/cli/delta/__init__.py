"""`duckicelake delta`."""
