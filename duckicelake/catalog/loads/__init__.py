"""A load: is what is known still so? Else catch up with DuckDB, and what a client is answered."""
