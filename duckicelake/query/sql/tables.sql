-- schema: the schema of the lake's tables in Postgres
SELECT current_schema();

-- newest: the newest snapshot of DuckLake
SELECT max(snapshot_id) FROM ducklake_snapshot;

-- at_time: the snapshot that was the newest at a time
SELECT max(snapshot_id) FROM ducklake_snapshot WHERE snapshot_time <= %(time)s;

-- has_snapshot: whether DuckLake has the snapshot
SELECT EXISTS (SELECT FROM ducklake_snapshot WHERE snapshot_id = %(snapshot_id)s);

-- name_at: the schema and the name that a table had at a snapshot
SELECT s.schema_name, t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.table_id = %(table_id)s
  AND t.begin_snapshot <= %(snapshot_id)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(snapshot_id)s)
  AND s.begin_snapshot <= %(snapshot_id)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(snapshot_id)s);
