-- What upkeep has done to all files of a table holds whatever the table is called since.
ALTER TABLE duckicelake_job ADD COLUMN table_id bigint;  -- DuckLake's; none where the table wasn't there yet

UPDATE duckicelake_job j SET table_id = t.table_id
FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND (s.schema_name, t.table_name) = (j.schema_name, j.table_name)
  AND j.kind IN ('sort', 'bloom-filters', 'remove-orphans');

CREATE INDEX duckicelake_job_whole ON duckicelake_job (table_id) WHERE kind IN ('sort', 'bloom-filters', 'remove-orphans');
