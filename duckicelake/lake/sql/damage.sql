-- table_names: the live tables with their namespaces
SELECT t.table_id, s.schema_name || '.' || t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL;

-- unprepared_table_names: the same of a lake that lacks migrations
SELECT t.table_id, s.schema_name || '.' || t.table_name
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id)
WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL;

-- names_of_all: what is live, as kind, schema and name, which a schema itself has none of
SELECT 'schema', schema_name, NULL FROM duckicelake_schemas() WHERE end_snapshot IS NULL
UNION ALL
SELECT 'table', s.schema_name, t.table_name FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL
UNION ALL
SELECT 'view', s.schema_name, v.view_name FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id)
WHERE v.end_snapshot IS NULL AND s.end_snapshot IS NULL;

-- doubled_delete_files: live data files with more than one live delete file; the last one is what should stay
SELECT d.table_id, d.data_file_id,
       string_agg(d.delete_file_id::text, ', ' ORDER BY d.begin_snapshot, d.delete_file_id) AS delete_file_ids,
       (array_agg(d.delete_file_id ORDER BY d.begin_snapshot, d.delete_file_id))[count(*)] AS last_id,
       max(d.begin_snapshot) AS last_begin, min(f.path) AS path,
       array_to_string(trim_array(array_agg(d.path ORDER BY d.begin_snapshot, d.delete_file_id), 1), ', ') AS others
FROM ducklake_delete_file d JOIN ducklake_data_file f USING (data_file_id)
WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL
  AND d.begin_snapshot <= (SELECT max(snapshot_id) FROM ducklake_snapshot)
GROUP BY d.table_id, d.data_file_id
HAVING count(*) > 1;

-- dangling_delete_files: live delete files without their data file
SELECT d.table_id, d.delete_file_id, d.data_file_id, d.path
FROM ducklake_delete_file d
WHERE d.end_snapshot IS NULL AND d.begin_snapshot <= (SELECT max(snapshot_id) FROM ducklake_snapshot)
  AND NOT EXISTS (
      SELECT FROM ducklake_data_file f WHERE f.data_file_id = d.data_file_id AND f.table_id = d.table_id);

-- incomplete_files: live files whose row lacks what every file has
SELECT table_id, 'ducklake_data_file' AS owner, data_file_id AS file_id, path
FROM ducklake_data_file
WHERE end_snapshot IS NULL
  AND (num_nulls(path, path_is_relative, record_count, file_size_bytes, begin_snapshot) > 0
       OR file_format IS DISTINCT FROM 'parquet' OR record_count < 0 OR file_size_bytes < 0)
UNION ALL
SELECT table_id, 'ducklake_delete_file', delete_file_id, path
FROM ducklake_delete_file
WHERE end_snapshot IS NULL
  AND (num_nulls(path, path_is_relative, delete_count, file_size_bytes, begin_snapshot) > 0
       OR format IS NULL OR format NOT IN ('parquet', 'puffin') OR delete_count < 0 OR file_size_bytes < 0);

-- missing_name_maps: live files that a map of names belongs to which isn't there
SELECT d.table_id, d.data_file_id, d.mapping_id, d.path
FROM ducklake_data_file d
WHERE d.end_snapshot IS NULL AND d.mapping_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM ducklake_name_mapping n WHERE n.mapping_id = d.mapping_id);

-- missing_schema_versions: snapshots that changed a table's name, columns or partitioning, without their version
SELECT c.table_id, c.at,
       coalesce((SELECT schema_version::text FROM ducklake_snapshot WHERE snapshot_id = c.at),
                'the schema_version of that snapshot') AS schema_version
FROM (
    SELECT table_id, begin_snapshot AS at FROM ducklake_table
    UNION SELECT table_id, begin_snapshot FROM ducklake_partition_info
    UNION SELECT table_id, begin_snapshot FROM ducklake_column WHERE end_snapshot IS DISTINCT FROM begin_snapshot
    UNION SELECT table_id, end_snapshot FROM ducklake_column
          WHERE end_snapshot IS NOT NULL AND end_snapshot <> begin_snapshot
) c
WHERE NOT EXISTS (
    SELECT FROM ducklake_schema_versions v
    WHERE v.begin_snapshot = c.at AND (v.table_id = c.table_id OR v.table_id IS NULL));

-- broken_partition_keys: keys of the current partitioning with no such column, or a transform that DuckLake lacks
SELECT i.table_id, p.partition_key_index, p.column_id, p.transform
FROM ducklake_partition_info i JOIN ducklake_partition_column p USING (partition_id, table_id)
WHERE i.end_snapshot IS NULL
  AND (p.transform !~ '^(identity|(epoch_)?(year|month|day|hour)|bucket\([1-9][0-9]*\))$' OR p.transform IS NULL OR NOT EXISTS (
      SELECT FROM ducklake_column c
      WHERE c.table_id = i.table_id AND c.column_id = p.column_id AND c.parent_column IS NULL
        AND c.end_snapshot IS NULL));

-- repeated_statistics: tables with more than one row of table-wide statistics
SELECT table_id, count(*) AS count
FROM ducklake_table_stats
GROUP BY table_id
HAVING count(*) > 1;

-- broken_tables: tables without what every table has, or that are there more than once
SELECT table_id
FROM ducklake_table
WHERE end_snapshot IS NULL
GROUP BY table_id
HAVING count(*) > 1
    OR bool_or(num_nulls(table_uuid, table_name, path, path_is_relative, schema_id, begin_snapshot) > 0);

-- like_named_tables: tables and views whose names differ in nothing but case
SELECT max(table_id) AS table_id, string_agg(name, ', ' ORDER BY name) AS names
FROM (
    SELECT table_id, schema_id, table_name AS name FROM ducklake_table WHERE end_snapshot IS NULL
    UNION ALL
    SELECT NULL, schema_id, view_name FROM ducklake_view WHERE end_snapshot IS NULL
) n
GROUP BY schema_id, lower(name COLLATE "C")
HAVING count(*) > 1 AND count(table_id) > 0;

-- unregistered_inlined_tables: tables of inlined rows that DuckLake doesn't know
SELECT split_part(c.relname, '_', 4)::bigint AS table_id, c.relname AS name, split_part(c.relname, '_', 5) AS version
FROM pg_class c
WHERE c.relname ~ '^ducklake_inlined_data_[0-9]+_[0-9]+$' AND c.relkind = 'r' AND pg_table_is_visible(c.oid)
  AND NOT EXISTS (SELECT FROM ducklake_inlined_data_tables i WHERE i.table_name = c.relname);

-- missing_inlined_tables: tables of inlined rows that aren't there
SELECT i.table_id, i.table_name AS name
FROM ducklake_inlined_data_tables i
WHERE to_regclass(quote_ident(i.table_name)) IS NULL;

-- unfit_inlined_tables: tables of inlined rows with other columns than their schema version; places matter, too. The first
-- three have either spelling
SELECT table_id, name, array_to_string(own, ', ') AS own,
       array_to_string(coalesce(duckicelake_system_columns(name), ARRAY['row_id', 'begin_snapshot', 'end_snapshot'])
                       || expected, ', ') AS expected
FROM (
    SELECT i.table_id, i.table_name AS name, v.at,
           (SELECT array_agg(lower(a.attname::text COLLATE "C") ORDER BY a.attnum) FROM pg_attribute a
            WHERE a.attrelid = to_regclass(quote_ident(i.table_name)) AND a.attnum > 0 AND NOT a.attisdropped) AS own,
           ARRAY(SELECT lower(c.column_name COLLATE "C") FROM ducklake_column c
                 WHERE c.table_id = i.table_id AND c.parent_column IS NULL AND c.begin_snapshot <= v.at
                   AND (c.end_snapshot IS NULL OR c.end_snapshot > v.at)
                 ORDER BY c.column_id) AS expected
    FROM ducklake_inlined_data_tables i, LATERAL (
        SELECT max(begin_snapshot) AS at FROM ducklake_schema_versions v
        WHERE v.table_id = i.table_id AND v.schema_version <= i.schema_version) v
) fit
WHERE at IS NOT NULL AND (own[4:] <> expected OR own IS NOT NULL AND duckicelake_system_columns(name) IS NULL);

-- spelled_inlined_tables: tables of inlined rows whose first columns are called as in another format than the lake's
SELECT i.table_id, i.table_name AS name, m.value AS format,
       string_agg(format('ALTER TABLE %I RENAME COLUMN %I TO %I;', i.table_name, a.attname, w.name), ' ' ORDER BY a.attnum)
           AS renames
FROM ducklake_inlined_data_tables i
JOIN ducklake_metadata m ON m.key = 'version' AND m.scope IS NULL
JOIN pg_attribute a ON a.attrelid = to_regclass(quote_ident(i.table_name)) AND a.attnum BETWEEN 1 AND 3
CROSS JOIN LATERAL (
    SELECT CASE WHEN m.value IN ('0.1', '0.2', '0.3', '0.4', '1.0') THEN '' ELSE '_ducklake_' END
           || (ARRAY['row_id', 'begin_snapshot', 'end_snapshot'])[a.attnum] AS name) w
WHERE a.attname <> w.name AND a.attname IN ('row_id', 'begin_snapshot', 'end_snapshot',
    '_ducklake_row_id', '_ducklake_begin_snapshot', '_ducklake_end_snapshot')
GROUP BY i.table_id, i.table_name, m.value;

-- containers: live delete files that hold several deletion vectors, as DuckDB 2.0 writes them
SELECT d.table_id, d.delete_file_id, d.path
FROM ducklake_delete_file d JOIN ducklake_data_file f USING (data_file_id)
JOIN ducklake_metadata m ON m.key = 'version' AND m.scope IS NULL
WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL AND d.format = 'puffin' AND d.footer_size > 0
  AND m.value = '1.0';

-- unlike_files: data files that only one side knows, of tables in which nothing has happened since we looked
WITH quiet AS (
    SELECT t.table_id, t.caught_up_to, t.current_snapshot_id
    FROM duckicelake_table t
    WHERE t.epoch = (SELECT epoch FROM duckicelake_epoch)  -- an expiry takes records of changes with it
      AND NOT EXISTS (
        SELECT FROM ducklake_snapshot n LEFT JOIN ducklake_snapshot_changes c USING (snapshot_id)
        WHERE n.snapshot_id > t.caught_up_to
          AND (c.snapshot_id IS NULL OR c.changes_made ~ ('(^|,)[a-z_]+:' || t.table_id || '(,|$)')))
), listed AS (
    SELECT t.table_id, f.ducklake_id, f.path
    FROM quiet t
    JOIN duckicelake_snapshot s ON s.table_id = t.table_id AND s.snapshot_id = t.current_snapshot_id
    JOIN duckicelake_manifest m ON m.manifest_id = ANY(s.manifest_ids) AND m.content = 0,
    LATERAL unnest(m.added || m.existing) AS u (file_id)
    JOIN duckicelake_file f USING (file_id)
    WHERE f.ducklake_id IS NOT NULL
)
SELECT table_id, data_file_id, coalesce(l.path, d.path) AS path,
       CASE WHEN d.begin_snapshot IS NULL THEN 'is listed to Iceberg clients, but DuckLake doesn''t have it'
            ELSE 'has come without a record of changes, and Iceberg clients don''t read it' END AS problem,
       CASE WHEN d.begin_snapshot IS NULL THEN 'deleted_from_table' ELSE 'inserted_into_table' END AS change
FROM (SELECT table_id, ducklake_id AS data_file_id, path FROM listed) l
FULL JOIN (
    SELECT f.table_id, f.data_file_id, f.path, f.begin_snapshot
    FROM ducklake_data_file f JOIN quiet q USING (table_id)
    WHERE f.end_snapshot IS NULL AND f.begin_snapshot <= q.caught_up_to
) d USING (table_id, data_file_id)
WHERE l.path IS NULL OR d.begin_snapshot IS NULL;

-- ahead_of_ducklake: tables that have seen snapshots which DuckLake doesn't have yet
SELECT t.table_id, t.caught_up_to, n.newest
FROM duckicelake_table t, (SELECT max(snapshot_id) AS newest FROM ducklake_snapshot) n
WHERE t.caught_up_to > n.newest;

-- never_created: tables of ours that DuckLake can't have had yet
SELECT t.table_id, t.location, n.next_catalog_id
FROM duckicelake_table t, (SELECT next_catalog_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) n
WHERE t.table_id >= n.next_catalog_id AND NOT EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = t.table_id);

-- like_named_namespaces: namespaces whose names differ in nothing but case, in one parent
SELECT string_agg(schema_name, ', ' ORDER BY schema_name) AS names
FROM duckicelake_schemas()
WHERE end_snapshot IS NULL
GROUP BY parent_id, lower(recorded_name COLLATE "C")
HAVING count(*) > 1;

-- same_named_namespaces: live schemas that are one to Iceberg clients
SELECT min(schema_name) AS name, string_agg(schema_id::text, ', ' ORDER BY schema_id) AS schema_ids
FROM duckicelake_schemas()
WHERE end_snapshot IS NULL
GROUP BY schema_name
HAVING count(*) > 1 AND count(DISTINCT recorded_name) + count(DISTINCT parent_id) > 1;

-- homeless_schemas: live schemas in schemas that aren't live
SELECT s.schema_id, coalesce(n.schema_name, s.schema_name) AS schema_name
FROM ducklake_schema s LEFT JOIN duckicelake_schemas() n USING (schema_id)
LEFT JOIN ducklake_schema p ON p.schema_id = n.parent_id
WHERE s.end_snapshot IS NULL AND (n.schema_id IS NULL OR p.end_snapshot IS NOT NULL);

-- homeless_tables: live tables in namespaces that aren't live
SELECT t.table_name, t.schema_id
FROM ducklake_table t
WHERE t.end_snapshot IS NULL AND NOT EXISTS (
    SELECT FROM duckicelake_schemas() s WHERE s.schema_id = t.schema_id AND s.end_snapshot IS NULL);

-- unknown_changes: snapshots whose record of changes DuckDB can't read; names in quotes may hold anything
SELECT snapshot_id, changes_made
FROM ducklake_snapshot_changes, (SELECT '(created_(schema|table|view|scalar_macro|table_macro)'
    '|dropped_(schema|table|view|scalar_macro|table_macro)|inserted_into_table|deleted_from_table|altered_(table|view)'
    '|inlined_(insert|delete)|inline_flush|flushed_inlined|merge_adjacent|rewrite_delete|compacted_table):[0-9.]+'
    AS token) known
WHERE changes_made <> ''
  AND regexp_replace(changes_made, '"([^"]|"")*"', '0', 'g') !~ ('^' || token || '(,' || token || ')*$');

-- low_next_ids: counters of the newest snapshot that would give ids again
SELECT n.snapshot_id, u.counter, u.highest + 1 AS least
FROM (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) n, LATERAL (
    SELECT 'next_file_id' AS counter, n.next_file_id AS next_id, greatest(
        (SELECT max(data_file_id) FROM ducklake_data_file), (SELECT max(delete_file_id) FROM ducklake_delete_file),
        (SELECT max(mapping_id) FROM ducklake_column_mapping)) AS highest
    UNION ALL
    SELECT 'next_catalog_id', n.next_catalog_id, greatest(
        (SELECT max(schema_id) FROM ducklake_schema), (SELECT max(table_id) FROM ducklake_table),
        (SELECT max(view_id) FROM ducklake_view), (SELECT max(macro_id) FROM ducklake_macro),
        (SELECT max(partition_id) FROM ducklake_partition_info), (SELECT max(sort_id) FROM ducklake_sort_info))
) u
WHERE u.next_id <= u.highest;

-- stray_view_column_tags: live tags of columns of views that aren't live, or that came twice
SELECT view_id, column_name, tags FROM duckicelake_stray_view_column_tags();

-- columns: columns of the live tables, parents before children
SELECT table_id, column_id, parent_column, column_name, column_type, coalesce(nulls_allowed, true)
FROM ducklake_column
WHERE end_snapshot IS NULL
ORDER BY table_id, parent_column NULLS FIRST, column_order;

-- row_ids: what the table-wide statistics of each table must say at least; a flushed row may be in a file repeatedly. Then
-- what they say, and how many rows of files are live, at least, but for deletes that are inlined
SELECT t.table_id, coalesce(f.record_count, 0)::bigint, coalesce(f.next_row_id, 0)::bigint,
       coalesce(f.file_size_bytes, 0)::bigint, s.next_row_id, s.record_count,
       (coalesce(f.live_count, 0) - coalesce((
            SELECT sum(d.delete_count) FROM ducklake_delete_file d
            WHERE d.table_id = t.table_id AND d.end_snapshot IS NULL AND d.begin_snapshot < duckicelake_never()), 0))::bigint
FROM ducklake_table t
LEFT JOIN (
    SELECT table_id, sum(record_count) AS record_count, sum(file_size_bytes) AS file_size_bytes,
           sum(record_count) FILTER (WHERE end_snapshot IS NULL) AS live_count,
           max(row_id_start + CASE WHEN partial_max IS NULL THEN record_count ELSE 1 END) AS next_row_id
    FROM ducklake_data_file GROUP BY table_id
) f USING (table_id)
LEFT JOIN ducklake_table_stats s USING (table_id)
WHERE t.end_snapshot IS NULL;

-- inlined_tables: registered tables of inlined rows that are there and have row ids
SELECT i.table_id, i.table_name
FROM ducklake_inlined_data_tables i
WHERE duckicelake_system_columns(i.table_name) IS NOT NULL;

-- inlined_delete_tables: tables of inlined deletes
SELECT split_part(c.relname, '_', 4)::bigint, c.relname
FROM pg_class c
WHERE c.relname ~ '^ducklake_inlined_delete_[0-9]+$' AND c.relkind = 'r' AND pg_table_is_visible(c.oid);

-- deletes_from_replaced_files: inlined deletes by file and snapshot whose file had been rewritten before, or was merged.
-- Expiry removes the row of a file only with every snapshot that reads it: if the deleting one is there, the file was merged
SELECT i.file_id, i.begin_snapshot, coalesce(f.row_id_start, (
           SELECT max(l.first_row_id) FROM duckicelake_file l
           WHERE l.table_id = %(table_id)s AND l.ducklake_id = i.file_id AND l.content = 0)),
       array_agg(DISTINCT i.row_id ORDER BY i.row_id)
FROM {} i LEFT JOIN ducklake_data_file f ON f.data_file_id = i.file_id
WHERE f.data_file_id IS NULL
      AND EXISTS (SELECT FROM ducklake_snapshot s WHERE s.snapshot_id = i.begin_snapshot)
      AND i.file_id < (SELECT next_file_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1)
   OR f.end_snapshot < i.begin_snapshot AND EXISTS (
          SELECT FROM ducklake_snapshot_changes c WHERE c.snapshot_id = f.end_snapshot
          AND c.changes_made ~ ('(^|,)rewrite_delete:' || %(table_id)s || '(,|$)'))
GROUP BY i.file_id, i.begin_snapshot, f.row_id_start
ORDER BY i.file_id, i.begin_snapshot;

-- returned_rows: rewrites of a table that brought deleted rows back, and how many
SELECT snapshot_id, duckicelake_returned_rows(%(table_id)s, snapshot_id) AS returned
FROM ducklake_snapshot_changes
WHERE changes_made ~ ('(^|,)rewrite_delete:' || %(table_id)s || '(,|$)')
  AND duckicelake_returned_rows(%(table_id)s, snapshot_id) > 0
ORDER BY snapshot_id;

-- deletes_before_rewrite: files with inlined deletes that a rewrite took the place of
SELECT f.data_file_id, f.row_id_start, array_agg(DISTINCT i.row_id ORDER BY i.row_id)
FROM {} i JOIN ducklake_data_file f ON f.data_file_id = i.file_id
WHERE f.table_id = %(table_id)s AND f.end_snapshot = %(at)s AND i.begin_snapshot < %(at)s
GROUP BY f.data_file_id, f.row_id_start
ORDER BY f.data_file_id;

-- live_files: the data and delete files that DuckLake reads now, but for those whose folder isn't known
SELECT f.table_id, f.kind, f.file_id, CASE WHEN f.path_is_relative THEN p.prefix || f.path ELSE f.path END, f.size
FROM (
    SELECT table_id, 'data' AS kind, data_file_id AS file_id, path, path_is_relative, file_size_bytes AS size
    FROM ducklake_data_file WHERE end_snapshot IS NULL
    UNION ALL
    SELECT d.table_id, 'delete', d.delete_file_id, d.path, d.path_is_relative, d.file_size_bytes
    FROM ducklake_delete_file d JOIN ducklake_data_file t USING (data_file_id)
    WHERE d.end_snapshot IS NULL AND t.end_snapshot IS NULL
      AND d.begin_snapshot <= (SELECT max(snapshot_id) FROM ducklake_snapshot)
) f
JOIN (
    SELECT t.table_id, CASE WHEN t.path_is_relative THEN s.folder ELSE '' END || t.path AS prefix
    FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
    WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL
) p USING (table_id)
WHERE f.path IS NOT NULL AND (p.prefix IS NOT NULL OR NOT f.path_is_relative);

-- listed_files: the files of every snapshot that Iceberg clients may read
SELECT DISTINCT t.table_id, f.path, f.file_size_in_bytes
FROM ducklake_table t JOIN duckicelake_snapshot s USING (table_id)
JOIN duckicelake_manifest m ON m.manifest_id = ANY(s.manifest_ids),
LATERAL unnest(m.added || m.existing) AS u (file_id)
JOIN duckicelake_file f USING (file_id)
WHERE t.end_snapshot IS NULL;

-- table_wide_statistics: the rows by which DuckDB answers without reading, of live primitive columns; and whether those are
-- in a list or map
WITH RECURSIVE repeated AS (
    SELECT e.table_id, e.column_id FROM ducklake_column e
    JOIN ducklake_column c ON c.table_id = e.table_id AND c.column_id = e.parent_column AND c.end_snapshot IS NULL
    WHERE e.end_snapshot IS NULL AND c.column_type IN ('list', 'map')
    UNION
    SELECT e.table_id, e.column_id FROM ducklake_column e
    JOIN repeated r ON r.table_id = e.table_id AND r.column_id = e.parent_column
    WHERE e.end_snapshot IS NULL
)
SELECT c.table_id, c.column_name, c.column_type,
       (c.table_id, c.column_id) IN (SELECT table_id, column_id FROM repeated), s.column_id, s.contains_null, s.contains_nan, s.min_value, s.max_value
FROM ducklake_table_column_stats s JOIN ducklake_column c USING (table_id, column_id)
WHERE c.end_snapshot IS NULL AND c.column_type NOT IN ('struct', 'list', 'map');

-- file_statistics: the values of live files that table-wide rows must cover, each once
SELECT s.table_id, s.column_id, bool_or(s.null_count > 0), bool_or(s.contains_nan),
       array_remove(array_agg(DISTINCT s.min_value), NULL), array_remove(array_agg(DISTINCT s.max_value), NULL)
FROM ducklake_file_column_stats s JOIN ducklake_data_file d USING (data_file_id)
WHERE d.end_snapshot IS NULL
GROUP BY s.table_id, s.column_id;
