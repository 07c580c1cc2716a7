"""`duckicelake load` and `watch`: files into tables by DuckDB, without Spark."""
