"""`duckicelake pipeline`: bulk jobs with Spark."""
