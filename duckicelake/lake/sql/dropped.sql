-- retention: seconds for which what is dropped can be brought back; 0: not at all
SELECT extract(epoch FROM drop_retention)::float8 FROM duckicelake_lake;

-- set_retention: for what is dropped from now on
UPDATE duckicelake_lake SET drop_retention = make_interval(secs => %(seconds)s)
WHERE drop_retention <> make_interval(secs => %(seconds)s);

-- dropped: what can be brought back, newest first, after a position
SELECT d.kind, d.object_id, o.uuid::text, coalesce(m.name, s.schema_name), o.name, d.snapshot_id, d.dropped_at,
       d.kept_until, d.is_purged
FROM duckicelake_dropped d
CROSS JOIN LATERAL (
    SELECT table_uuid AS uuid, schema_id, table_name AS name FROM ducklake_table
    WHERE d.kind = 'table' AND table_id = d.object_id AND end_snapshot = d.snapshot_id
    UNION ALL
    SELECT view_uuid, schema_id, view_name FROM ducklake_view
    WHERE d.kind = 'view' AND view_id = d.object_id AND end_snapshot = d.snapshot_id
    UNION ALL
    SELECT schema_uuid, schema_id, NULL FROM ducklake_schema
    WHERE d.kind = 'namespace' AND schema_id = d.object_id AND end_snapshot = d.snapshot_id
) o
JOIN duckicelake_schemas() s USING (schema_id)
LEFT JOIN duckicelake_moved_schema m USING (schema_id)
WHERE d.kept_until > clock_timestamp()
  AND (%(namespace)s::text IS NULL OR duckicelake_is_within(coalesce(m.name, s.schema_name), %(namespace)s))
  AND (%(kind)s::text IS NULL OR d.kind = %(kind)s)
  AND (%(object_id)s::bigint IS NULL OR d.object_id = %(object_id)s)
  AND (%(after)s::bigint[] IS NULL OR ARRAY[-d.snapshot_id, d.object_id] > %(after)s::bigint[])
ORDER BY d.snapshot_id DESC, d.object_id, d.kind
LIMIT %(most)s;

-- return_table: a table's row in the schema given, and all that ended with its last one
WITH old AS (
    SELECT table_uuid, path, path_is_relative, schema_id FROM ducklake_table
    WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_table AS (
    INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, end_snapshot, schema_id, table_name, path,
        path_is_relative)
    SELECT %(object_id)s, table_uuid, %(at)s, NULL, %(schema_id)s, %(name)s,
           CASE WHEN schema_id = %(schema_id)s THEN path ELSE %(absolute_path)s END,
           CASE WHEN schema_id = %(schema_id)s THEN path_is_relative ELSE false END
    FROM old
), returned_partition AS (
    UPDATE ducklake_partition_info SET end_snapshot = NULL
    WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_column AS (
    UPDATE ducklake_column SET end_snapshot = NULL WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_column_tag AS (
    UPDATE ducklake_column_tag SET end_snapshot = NULL WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_data_file AS (
    UPDATE ducklake_data_file SET end_snapshot = NULL WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_delete_file AS (
    UPDATE ducklake_delete_file SET end_snapshot = NULL WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_tag AS (
    UPDATE ducklake_tag SET end_snapshot = NULL WHERE object_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_version AS (
    INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id)
    VALUES (%(at)s, %(schema_version)s, %(object_id)s)
), side_row AS (
    UPDATE duckicelake_table SET outlives_drop = false WHERE table_id = %(object_id)s
)
UPDATE ducklake_sort_info SET end_snapshot = NULL WHERE table_id = %(object_id)s AND end_snapshot = %(dropped)s;

-- return_view: a view's row in the schema given, and the comments that ended with its last one
WITH returned_view AS (
    INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, dialect, sql,
        column_aliases)
    SELECT view_id, view_uuid, %(at)s, NULL, %(schema_id)s, %(name)s, dialect, sql, column_aliases FROM ducklake_view
    WHERE view_id = %(object_id)s AND end_snapshot = %(dropped)s
), returned_tag AS (
    UPDATE ducklake_tag SET end_snapshot = NULL WHERE object_id = %(object_id)s AND end_snapshot = %(dropped)s
)
SELECT duckicelake_return_view_column_tags(%(object_id)s, %(dropped)s);

-- return_schema: a schema's row under a new id, its properties and options
WITH properties AS (
    UPDATE duckicelake_namespace SET schema_id = %(schema_id)s WHERE schema_id = %(object_id)s
), options AS (
    UPDATE ducklake_metadata SET scope_id = %(schema_id)s WHERE scope = 'schema' AND scope_id = %(object_id)s
)
INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative)
SELECT %(schema_id)s, schema_uuid, %(at)s, %(name)s, path, path_is_relative FROM ducklake_schema
WHERE schema_id = %(object_id)s AND end_snapshot = %(dropped)s;

-- forget: what was brought back, or may not be any more
DELETE FROM duckicelake_dropped WHERE kind = %(kind)s AND object_id = %(object_id)s;

-- request_purge: whether a table's files go when the time is over
UPDATE duckicelake_dropped SET is_purged = %(purge)s WHERE kind = 'table' AND object_id = %(object_id)s;

-- has_due: whether there is something that can't be brought back any more
SELECT 1 FROM duckicelake_dropped WHERE kept_until <= clock_timestamp() LIMIT 1;

-- due: what can't be brought back any more
SELECT kind, object_id, is_purged FROM duckicelake_dropped
WHERE kept_until <= clock_timestamp()
ORDER BY kept_until
LIMIT 1;

-- end_now: end the time of something at once
UPDATE duckicelake_dropped SET kept_until = clock_timestamp()
WHERE kind = %(kind)s AND object_id = %(object_id)s AND kept_until > clock_timestamp();

-- forget_namespace: the properties of a schema that is gone
DELETE FROM duckicelake_namespace WHERE schema_id = %(object_id)s;

-- forget_view: what Iceberg clients got of a view that is gone
DELETE FROM duckicelake_view WHERE view_id = %(object_id)s;

-- drop_options: DuckDB reads the options of all tables at each ATTACH, so that those of dropped tables go
SELECT duckicelake_set_options(%(object_id)s, (
    SELECT json_object_agg(key, NULL) FROM ducklake_metadata WHERE scope = 'table' AND scope_id = %(object_id)s));
