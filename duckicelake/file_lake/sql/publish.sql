-- find: a snapshot by its number, or the newest until a time; then the newest of all
SELECT max(snapshot_id) FILTER (WHERE CASE WHEN %(number)s::bigint IS NULL THEN snapshot_time <= %(time)s::timestamptz
                                           ELSE snapshot_id = %(number)s END),
       max(snapshot_id)
FROM ducklake_snapshot;

-- nested: schemas within others, which DuckLake 1.0 doesn't have
SELECT schema_name FROM ducklake_schema s
WHERE to_jsonb(s) ->> 'parent_schema_id' IS NOT NULL
  AND begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR end_snapshot > %(at)s);

-- tables: the tables of a snapshot with the folders of their files. Queries begin with it
WITH schema_folder AS (
    SELECT schema_id, CASE WHEN path_is_relative
                           THEN (SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL)
                           ELSE '' END || path AS folder
    FROM ducklake_schema
), published_table AS (
    SELECT t.table_id, CASE WHEN t.path_is_relative THEN s.folder ELSE '' END || t.path AS folder
    FROM ducklake_table t JOIN schema_folder s USING (schema_id)
    WHERE t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
), published_file AS (
    SELECT CASE WHEN f.path_is_relative THEN t.folder ELSE '' END || f.path AS path
    FROM ducklake_data_file f JOIN published_table t USING (table_id)
    WHERE f.begin_snapshot <= %(at)s AND (f.end_snapshot IS NULL OR f.end_snapshot > %(at)s)
    UNION
    SELECT CASE WHEN f.path_is_relative THEN t.folder ELSE '' END || f.path
    FROM ducklake_delete_file f JOIN published_table t USING (table_id)
    WHERE f.begin_snapshot <= %(at)s AND (f.end_snapshot IS NULL OR f.end_snapshot > %(at)s)
)

-- hold: after `tables`: keep the files of a snapshot, whatever is expired or dropped
INSERT INTO duckicelake_file_ref (path, table_id, reason)
SELECT duckicelake_canonical_path(path), -1, %(reason)s FROM published_file
ON CONFLICT DO NOTHING;

-- count_unheld: after `tables`: how many files of a snapshot aren't kept
SELECT count(*) FROM published_file
WHERE duckicelake_canonical_path(path) NOT IN (
    SELECT path FROM duckicelake_file_ref WHERE table_id = -1 AND reason = %(reason)s);

-- release: give up what a publication keeps
DELETE FROM duckicelake_file_ref WHERE table_id = -1 AND reason = %(reason)s;

-- publications: what is published, and how many files each keeps
SELECT reason, count(*) FROM duckicelake_file_ref WHERE table_id = -1 AND starts_with(reason, 'published ') GROUP BY 1
ORDER BY 1;
