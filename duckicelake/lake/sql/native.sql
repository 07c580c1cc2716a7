-- newest: the newest DuckLake snapshot
SELECT max(snapshot_id) FROM ducklake_snapshot;

-- changes: what DuckLake snapshots in (after, upto] changed, those left out that can't be about a table, and whether it
-- got a name there, at its creation or by a rename, and whether one that wrote files has a delete file of it; first, in
-- every row, how many are there and say what they changed
WITH recorded AS MATERIALIZED (
    SELECT s.snapshot_id, s.snapshot_time, c.changes_made
    FROM ducklake_snapshot s JOIN ducklake_snapshot_changes c USING (snapshot_id)
    WHERE s.snapshot_id > %(after)s AND s.snapshot_id <= %(upto)s
), begun AS MATERIALIZED (
    SELECT begin_snapshot FROM ducklake_table WHERE table_id = %(table_id)s
)
SELECT n.count, r.snapshot_id, (extract(epoch FROM r.snapshot_time) * 1000)::bigint, r.changes_made,
       r.snapshot_id IN (SELECT * FROM begun),
       CASE WHEN strpos(r.changes_made, 'inserted_into_table' || %(mark)s) > 0 THEN EXISTS (
           SELECT FROM ducklake_delete_file d WHERE d.table_id = %(table_id)s AND d.begin_snapshot = r.snapshot_id)
       ELSE false END
FROM (SELECT count(*) FROM recorded) n
LEFT JOIN recorded r ON strpos(r.changes_made, %(mark)s) > 0 OR r.snapshot_id IN (SELECT * FROM begun)
ORDER BY r.snapshot_id;

-- table_names: name and identity of a table at a snapshot
SELECT t.table_uuid::text, s.schema_name, t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.table_id = %(table_id)s
  AND t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s);

-- full_name: the newest name of a table
SELECT s.schema_name, t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.table_id = %(table_id)s
ORDER BY t.begin_snapshot DESC, s.begin_snapshot DESC
LIMIT 1;

-- columns: columns of a table at a snapshot with their comments, parents before children
SELECT c.column_id, c.parent_column, c.column_name, c.column_type, coalesce(c.nulls_allowed, true),
       c.initial_default, c.default_value, coalesce(c.default_value_type, ''), g.value
FROM ducklake_column c
LEFT JOIN ducklake_column_tag g
  ON g.table_id = c.table_id AND g.column_id = c.column_id AND g.key = 'comment'
 AND g.begin_snapshot <= %(at)s AND (g.end_snapshot IS NULL OR g.end_snapshot > %(at)s)
WHERE c.table_id = %(table_id)s
  AND c.begin_snapshot <= %(at)s AND (c.end_snapshot IS NULL OR c.end_snapshot > %(at)s)
ORDER BY c.parent_column NULLS FIRST, c.column_order;

-- partition_keys: partition keys of a table at a snapshot; one row of nulls where partitioning was reset.
-- The types named hash otherwise than the wider ones they are read as, so a bucket of theirs isn't one of those
SELECT i.partition_id, p.column_id,
       p.transform || CASE WHEN p.transform LIKE 'bucket(%%' AND c.column_type IN
                                ('uint8', 'uint16', 'uint32', 'uint64', 'timestamp_s', 'timestamp_ms')
                           THEN ' of ' || c.column_type ELSE '' END
FROM ducklake_partition_info i LEFT JOIN ducklake_partition_column p USING (partition_id, table_id)
LEFT JOIN ducklake_column c
  ON c.table_id = p.table_id AND c.column_id = p.column_id
 AND c.begin_snapshot <= %(at)s AND (c.end_snapshot IS NULL OR c.end_snapshot > %(at)s)
WHERE i.table_id = %(table_id)s
  AND i.begin_snapshot <= %(at)s AND (i.end_snapshot IS NULL OR i.end_snapshot > %(at)s)
ORDER BY p.partition_key_index;

-- sort_keys: sort keys of a table at a snapshot
SELECT e.expression, e.sort_direction, e.null_order
FROM ducklake_sort_info i JOIN ducklake_sort_expression e USING (sort_id, table_id)
WHERE i.table_id = %(table_id)s
  AND i.begin_snapshot <= %(at)s AND (i.end_snapshot IS NULL OR i.end_snapshot > %(at)s)
ORDER BY e.sort_key_index;

-- table_comment: comment of a table at a snapshot
SELECT value FROM ducklake_tag
WHERE object_id = %(table_id)s AND key = 'comment'
  AND begin_snapshot <= %(at)s AND (end_snapshot IS NULL OR end_snapshot > %(at)s);

-- ground: what reading a window begins with. The first and the last id that files got which came in (after, upto],
-- `upto` the newest snapshot, are null if unknown, as `after` has expired, or files have ids that are yet to be
-- given; then the tables of inlined rows, whether there is one of inlined deletes, and what is wrong: tables of inlined
-- rows that are there without DuckLake's three columns, in either spelling
SELECT f.first, f.last,
       ARRAY(SELECT i.table_name::text FROM ducklake_inlined_data_tables i
             WHERE i.table_id = %(table_id)s ORDER BY i.schema_version),
       to_regclass('ducklake_inlined_delete_' || %(table_id)s::bigint) IS NOT NULL,
       ARRAY(SELECT i.table_name::text FROM ducklake_inlined_data_tables i
             WHERE i.table_id = %(table_id)s AND to_regclass(quote_ident(i.table_name)) IS NOT NULL
               AND duckicelake_system_columns(i.table_name) IS NULL)
FROM (VALUES (true)) one LEFT JOIN (
    SELECT a.next_file_id AS first, u.next_file_id - 1 AS last
    FROM ducklake_snapshot a, ducklake_snapshot u
    WHERE a.snapshot_id = %(after)s AND u.snapshot_id = %(upto)s AND u.next_file_id > greatest(
        (SELECT max(data_file_id) FROM ducklake_data_file), (SELECT max(delete_file_id) FROM ducklake_delete_file))
) f ON true;

-- data_files: data files that appear or disappear for a reader who knows `live` as of `after`; those that come have ids
-- from `first` to `last`. Before the fields of a LakeFile stands whether its path is relative
SELECT d.path_is_relative, d.data_file_id, NULL, d.begin_snapshot, d.end_snapshot, d.path,
       d.file_format, d.record_count, d.file_size_bytes, d.row_id_start, d.partition_id, d.partial_max, d.mapping_id,
       d.footer_size
FROM ducklake_data_file d
WHERE d.table_id = %(table_id)s AND d.begin_snapshot <= %(upto)s
  AND (d.end_snapshot IS NULL OR d.end_snapshot > %(after)s)
  AND (d.end_snapshot > %(after)s AND d.end_snapshot <= %(upto)s
       OR d.data_file_id BETWEEN %(first)s AND %(last)s AND NOT d.data_file_id = ANY(%(live)s::bigint[]))
ORDER BY d.data_file_id;

-- missing_data_files: data files of `live` that DuckLake no longer has at all
SELECT l.id FROM unnest(%(live)s::bigint[]) AS l (id)
WHERE NOT EXISTS (SELECT FROM ducklake_data_file d WHERE d.data_file_id = l.id AND d.begin_snapshot <= %(upto)s);

-- delete_files: delete files of a table that are visible somewhere in (after, upto] and not seen yet, with such ids
SELECT d.path_is_relative, d.delete_file_id, d.data_file_id, d.begin_snapshot, d.end_snapshot, d.path,
       d.format, d.delete_count, d.file_size_bytes, NULL, NULL, d.partial_max, NULL, NULL
FROM ducklake_delete_file d
WHERE d.table_id = %(table_id)s AND d.begin_snapshot <= %(upto)s
  AND (d.end_snapshot IS NULL OR d.end_snapshot > %(after)s)
  AND d.delete_file_id BETWEEN %(first)s AND %(last)s
  AND NOT EXISTS (SELECT FROM duckicelake_seen_delete s WHERE s.delete_file_id = d.delete_file_id)
ORDER BY d.delete_file_id;

-- doubled_deletes: data files among the targets that have more than one live delete file
SELECT d.data_file_id, array_agg(d.delete_file_id ORDER BY d.delete_file_id)
FROM ducklake_delete_file d JOIN ducklake_data_file t USING (data_file_id)
WHERE d.data_file_id = ANY(%(targets)s::bigint[]) AND d.begin_snapshot <= %(upto)s AND t.begin_snapshot <= %(upto)s
  AND (d.end_snapshot IS NULL OR d.end_snapshot > %(upto)s) AND (t.end_snapshot IS NULL OR t.end_snapshot > %(upto)s)
GROUP BY d.data_file_id
HAVING count(*) > 1
ORDER BY d.data_file_id;

-- path_prefix: where relative paths of a table's files begin
SELECT CASE WHEN t.path_is_relative THEN coalesce(
                s.folder, duckicelake_refuse_nested(s.schema_name || '.' || t.table_name)::text) ELSE '' END || t.path
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.table_id = %(table_id)s
ORDER BY t.begin_snapshot DESC
LIMIT 1;

-- schema_prefix: where relative paths of a schema's tables begin
SELECT folder FROM duckicelake_schemas() WHERE schema_name = %(schema_name)s AND end_snapshot IS NULL;

-- file_stats: column statistics of data files, those of each as the fields of ColumnStats
SELECT data_file_id, json_agg(json_build_array(column_id, null_count > 0, contains_nan, min_value, max_value,
                                               column_size_bytes, value_count, null_count))::text
FROM ducklake_file_column_stats
WHERE data_file_id = ANY(%(data_file_ids)s)
GROUP BY data_file_id;

-- partition_values: partition values of data files with the keys that they belong to, as in partition_keys
SELECT v.data_file_id, p.column_id,
       p.transform || CASE WHEN p.transform LIKE 'bucket(%%' AND c.column_type IN
                                ('uint8', 'uint16', 'uint32', 'uint64', 'timestamp_s', 'timestamp_ms')
                           THEN ' of ' || c.column_type ELSE '' END,
       v.partition_value
FROM ducklake_file_partition_value v
JOIN ducklake_data_file d USING (data_file_id)
JOIN ducklake_partition_column p ON p.partition_id = d.partition_id AND p.partition_key_index = v.partition_key_index
LEFT JOIN ducklake_column c
  ON c.table_id = d.table_id AND c.column_id = p.column_id
 AND c.begin_snapshot <= d.begin_snapshot AND (c.end_snapshot IS NULL OR c.end_snapshot > d.begin_snapshot)
WHERE v.data_file_id = ANY(%(data_file_ids)s);

-- name_maps: what files without field ids call the columns, each field before those that are in it
SELECT mapping_id, source_name, target_field_id, parent_column, coalesce(is_partition, false)
FROM ducklake_name_mapping
WHERE mapping_id = ANY(%(mapping_ids)s)
ORDER BY mapping_id, column_id;

-- newest_name_maps: the same of a table's last maps
SELECT mapping_id, source_name, target_field_id, parent_column, coalesce(is_partition, false)
FROM ducklake_name_mapping
WHERE mapping_id IN (
    SELECT mapping_id FROM ducklake_column_mapping WHERE table_id = %(table_id)s AND type = 'map_by_name'
    ORDER BY mapping_id DESC LIMIT 100)
ORDER BY mapping_id, column_id;

-- column_types: the types that columns of a table ever had
SELECT DISTINCT column_type FROM ducklake_column WHERE table_id = %(table_id)s;

-- column_types_by_id: the same for each column and field, but for structs, lists and maps
SELECT column_id, array_agg(DISTINCT column_type::text) FROM ducklake_column
WHERE table_id = %(table_id)s AND column_type NOT IN ('struct', 'list', 'map')
GROUP BY column_id HAVING count(DISTINCT column_type) > 1;

-- had_dotted_names: whether a table ever had a field whose name is another's, a dot, and more
SELECT EXISTS (SELECT FROM ducklake_column dotted JOIN ducklake_column other USING (table_id)
               WHERE table_id = %(table_id)s AND starts_with(lower(dotted.column_name), lower(other.column_name) || '.'));

-- table_stats: table-wide statistics
SELECT record_count, next_row_id, file_size_bytes FROM ducklake_table_stats WHERE table_id = %(table_id)s;

-- had_rows: whether a table ever had rows that we know of
SELECT EXISTS (SELECT FROM ducklake_data_file WHERE table_id = %(table_id)s)
    OR EXISTS (SELECT FROM duckicelake_file WHERE table_id = %(table_id)s AND ducklake_id IS NOT NULL)
    OR EXISTS (SELECT FROM duckicelake_virtual_file WHERE table_id = %(table_id)s);

-- table_column_stats: table-wide column statistics. A row of nulls without bounds may be of a column that has got values
-- since, as DuckDB doesn't always begin bounds then: what it says of nulls is taken for unknown, so that no update widens it
SELECT column_id, CASE WHEN min_value IS NULL AND max_value IS NULL AND contains_null THEN NULL ELSE contains_null END,
       contains_nan, min_value, max_value
FROM ducklake_table_column_stats
WHERE table_id = %(table_id)s;

-- created_at: the snapshot that created a table
SELECT min(begin_snapshot) FROM ducklake_table WHERE table_id = %(table_id)s;

-- options: a table's options. Of two rows of one option, DuckDB goes by the later one
SELECT key, value FROM ducklake_metadata WHERE scope = 'table' AND scope_id = %(table_id)s ORDER BY ctid;

-- keep: a table that is there, and isn't dropped before the end of the transaction
SELECT FROM ducklake_table WHERE table_id = %(table_id)s AND end_snapshot IS NULL FOR SHARE;

-- time_of: when a snapshot was made, in epoch milliseconds; the next one's time if it has expired
SELECT (extract(epoch FROM snapshot_time) * 1000)::bigint
FROM ducklake_snapshot WHERE snapshot_id >= %(at)s ORDER BY snapshot_id LIMIT 1;

-- count_marked: how many of these snapshots have this said of them
SELECT count(*) FROM ducklake_snapshot_changes
WHERE snapshot_id = ANY(%(snapshot_ids)s::bigint[]) AND commit_extra_info = %(mark)s;

-- has_changed_files: whether a snapshot changed which files a table has, or is one of several in a file
SELECT EXISTS (
    SELECT FROM (
        SELECT begin_snapshot, end_snapshot, partial_max FROM ducklake_data_file WHERE table_id = %(table_id)s
        UNION ALL
        SELECT begin_snapshot, end_snapshot, partial_max FROM ducklake_delete_file WHERE table_id = %(table_id)s
    ) f
    WHERE (begin_snapshot = %(at)s OR end_snapshot = %(at)s) AND begin_snapshot IS DISTINCT FROM end_snapshot
       OR %(at)s BETWEEN begin_snapshot AND partial_max);
