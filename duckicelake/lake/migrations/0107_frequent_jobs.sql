-- Jobs that run as often as other tables change are thinned at the end of each, by table.
UPDATE duckicelake_job j SET table_id = t.table_id
FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND (s.schema_name, t.table_name) = (j.schema_name, j.table_name)
  AND j.kind IN ('refresh', 'follow-delta') AND j.table_id IS NULL;

CREATE INDEX duckicelake_job_frequent ON duckicelake_job (table_id, kind, number) WHERE kind IN ('refresh', 'follow-delta');
