-- files_with_deletes: data files of a table by id, with the one delete file that they have, and since when others ended
SELECT f.data_file_id, CASE WHEN f.path_is_relative THEN p.prefix || f.path ELSE f.path END,
       d.delete_file_id, d.begin_snapshot, CASE WHEN d.path_is_relative THEN p.prefix || d.path ELSE d.path END,
       d.format, d.delete_count, d.file_size_bytes,
       (SELECT max(e.end_snapshot) FROM ducklake_delete_file e WHERE e.data_file_id = f.data_file_id)
FROM (SELECT %(prefix)s::text AS prefix) p
JOIN ducklake_data_file f ON f.table_id = %(table_id)s AND f.data_file_id = ANY(%(data_file_ids)s)
LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL
     AND d.begin_snapshot < duckicelake_never();

-- folders: whether files of a partition lie in folders named after it
SELECT value FROM ducklake_metadata
WHERE key = 'hive_file_pattern'
  AND (scope IS NULL OR scope = 'table' AND scope_id = %(table_id)s
       OR scope = 'schema' AND scope_id = (SELECT schema_id FROM ducklake_table
                                           WHERE table_id = %(table_id)s AND end_snapshot IS NULL))
ORDER BY scope = 'table' DESC NULLS LAST, scope = 'schema' DESC NULLS LAST
LIMIT 1;

-- add_size: of files that came
UPDATE ducklake_table_stats SET file_size_bytes = file_size_bytes + %(size)s WHERE table_id = %(table_id)s;

-- forget_unbounded: table-wide statistics without bounds of columns that hold values: the next insert would begin bounds as
-- if there were none
DELETE FROM ducklake_table_column_stats
WHERE table_id = %(table_id)s AND column_id = ANY(%(column_ids)s)
  AND min_value IS NULL AND max_value IS NULL AND extra_stats IS NULL;

-- remove_delete_file: one that another with the same deletes and more takes the place of
DELETE FROM ducklake_delete_file WHERE delete_file_id = %(delete_file_id)s AND end_snapshot IS NULL
RETURNING delete_file_id;

-- insert_delete_files: all deletes of a data file, each with the snapshot that deleted the row; by the columns' names, as
-- in insert_data_files
INSERT INTO ducklake_delete_file
SELECT f.* FROM json_populate_recordset(
    json_populate_record(NULL::ducklake_delete_file,
        json_build_object('table_id', %(table_id)s::bigint, 'path_is_relative', true, 'format', 'parquet')),
    %(files)s::json) f;

-- keep_lease: whether flushing the table is left to this session from now on, until it is left idle for too long
SELECT l.is_held, (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout')
FROM pg_try_advisory_lock(%(key)s # {short_schema_key}, %(table_id)s) AS l (is_held),
     set_config('idle_session_timeout', CASE WHEN l.is_held THEN current_setting('statement_timeout') ELSE '0' END, false);

-- leave_lease: no more
SELECT pg_advisory_unlock(%(key)s # {short_schema_key}, %(table_id)s), set_config('idle_session_timeout', '0', false);
