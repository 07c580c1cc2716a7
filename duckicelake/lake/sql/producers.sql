-- applied: the last sequences of some producers
SELECT p.table_id, p.app_id, p.sequence
FROM unnest(%(table_ids)s::bigint[], %(app_ids)s::text[]) AS asked (table_id, app_id)
JOIN duckicelake_producer p USING (table_id, app_id);

-- note: how far they are now
INSERT INTO duckicelake_producer (table_id, app_id, sequence, snapshot_id)
SELECT table_id, app_id, sequence, %(snapshot_id)s
FROM json_to_recordset(%(producers)s::json) AS n (table_id bigint, app_id text, sequence bigint)
ON CONFLICT (table_id, app_id) DO UPDATE
SET sequence = excluded.sequence, snapshot_id = excluded.snapshot_id, applied = excluded.applied
WHERE duckicelake_producer.sequence < excluded.sequence;

-- newest: how far a producer is with the live table of a name; one row of nulls if it hasn't begun, none without table
SELECT p.sequence, p.snapshot_id, p.applied
FROM ducklake_table t
JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL AND s.schema_name = %(schema_name)s
LEFT JOIN duckicelake_producer p ON p.table_id = t.table_id AND p.app_id = %(app_id)s
WHERE t.end_snapshot IS NULL AND t.table_name = %(table_name)s;
