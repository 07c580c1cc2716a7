-- insert: files that clients uploaded for snapshots of a table
INSERT INTO duckicelake_upload (table_id, paths)
SELECT %(table_id)s, ARRAY(SELECT json_array_elements_text(u)) FROM json_array_elements(%(uploads)s::json) AS u;

-- due: what was uploaded so long ago that it may be deleted, oldest first, and where the table is, null if it has gone
SELECT u.upload_id, u.table_id, u.paths, CASE WHEN l.table_id IS NOT NULL THEN t.location END
FROM duckicelake_upload u
LEFT JOIN duckicelake_table t USING (table_id)
LEFT JOIN ducklake_table l ON l.table_id = t.table_id AND l.end_snapshot IS NULL
WHERE u.due_at <= clock_timestamp()
ORDER BY u.due_at
LIMIT %(most)s;

-- forget: uploads whose files are deleted
DELETE FROM duckicelake_upload WHERE upload_id = ANY(%(upload_ids)s);

-- postpone: uploads with files that are still needed, or whose table isn't there
UPDATE duckicelake_upload SET due_at = clock_timestamp() + interval '7 days' WHERE upload_id = ANY(%(upload_ids)s);
