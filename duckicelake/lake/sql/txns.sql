-- applied: the last versions of some apps
SELECT t.table_id, t.app_id, t.is_run, t.version
FROM unnest(%(table_ids)s::bigint[], %(app_ids)s::text[], %(are_runs)s::boolean[]) AS asked (table_id, app_id, is_run)
JOIN duckicelake_txn t USING (table_id, app_id, is_run);

-- record: the last versions of apps, where they are above those of before. Summaries come as text: JSON within JSON may
-- have no NUL
INSERT INTO duckicelake_txn (table_id, app_id, is_run, version, snapshot_id, iceberg_snapshot_id, summary)
SELECT table_id, app_id, is_run, version, snapshot_id, iceberg_snapshot_id, summary::json
FROM json_to_recordset(%(txns)s::json) AS n (table_id bigint, app_id text, is_run boolean, version bigint,
    snapshot_id bigint, iceberg_snapshot_id bigint, summary text)
ON CONFLICT (table_id, app_id, is_run) DO UPDATE
SET version = excluded.version, snapshot_id = excluded.snapshot_id,
    iceberg_snapshot_id = excluded.iceberg_snapshot_id, summary = excluded.summary, applied = excluded.applied
WHERE duckicelake_txn.version < excluded.version;

-- newest: the last version of an app in the live table of a name; one row of nulls without any, no row without a table
SELECT x.version, x.snapshot_id, x.applied, x.iceberg_snapshot_id, x.summary
FROM ducklake_table t
JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL AND s.schema_name = %(schema_name)s
LEFT JOIN duckicelake_txn x ON x.table_id = t.table_id AND x.app_id = %(app_id)s AND x.is_run = %(is_run)s
WHERE t.end_snapshot IS NULL AND t.table_name = %(table_name)s;
