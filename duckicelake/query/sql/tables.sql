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

-- like_names: live tables and views of a schema, and those of a name, in any case, in others
SELECT s.schema_name, o.name
FROM (
    SELECT schema_id, table_name AS name FROM ducklake_table WHERE end_snapshot IS NULL
    UNION ALL
    SELECT schema_id, view_name FROM ducklake_view WHERE end_snapshot IS NULL
) o JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.end_snapshot IS NULL AND (s.schema_name = %(schema_name)s OR lower(o.name) = lower(%(name)s))
ORDER BY lower(o.name) = lower(%(name)s) DESC, s.schema_name, o.name
LIMIT 1000;

-- fields: the newest names and types of all columns that tables have had, and of the fields in them
SELECT DISTINCT ON (table_id, column_id) table_id, column_id, parent_column, column_name, column_type
FROM ducklake_column
WHERE table_id = ANY (%(table_ids)s)
ORDER BY table_id, column_id, begin_snapshot DESC;
