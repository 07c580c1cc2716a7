"""The main job: Spark, DuckDB, PyIceberg and curl on one lake, every answer compared with the CSV files it came from.

Read in this order: `__main__` (the story), `dataset` (what goes in), `model` (what must come out), `connect` (how an
engine gets to the lake), `spark_job`, `duckdb_job`, `pyiceberg_job`, `curl_job`, `identity`.
"""
