-- take_ids: more catalog ids for a snapshot of this transaction; the first of them
UPDATE ducklake_snapshot SET next_catalog_id = next_catalog_id + %(count)s WHERE snapshot_id = %(at)s
RETURNING next_catalog_id - %(count)s;

-- move_schemas: schemas end and go on under new ids and names, in the same folders, with their properties and options
WITH moved AS (
    SELECT * FROM unnest(%(old_ids)s::bigint[], %(new_ids)s::bigint[], %(names)s::text[]) AS m (old_id, new_id, name)
), properties AS (
    UPDATE duckicelake_namespace n SET schema_id = m.new_id FROM moved m WHERE n.schema_id = m.old_id
), options AS (
    UPDATE ducklake_metadata o SET scope_id = m.new_id FROM moved m WHERE o.scope = 'schema' AND o.scope_id = m.old_id
), ended AS (
    UPDATE ducklake_schema s SET end_snapshot = %(at)s FROM moved m
    WHERE s.schema_id = m.old_id AND s.end_snapshot IS NULL
    RETURNING m.new_id, m.name, s.schema_uuid, s.path, s.path_is_relative
)
INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative)
SELECT new_id, schema_uuid, %(at)s, name, path, path_is_relative FROM ended;

-- move_tables: the next version of each table, in its schema's new row; (new schema, table, its name). Folders stay, and
-- with them the paths, which are relative to their schema's.
WITH moved AS (
    SELECT * FROM unnest(%(old_ids)s::bigint[], %(new_ids)s::bigint[]) AS m (old_id, new_id)
), ended AS (
    UPDATE ducklake_table t SET end_snapshot = %(at)s FROM moved m
    WHERE t.schema_id = m.old_id AND t.end_snapshot IS NULL
    RETURNING t.table_id, t.table_uuid, m.new_id, t.table_name, t.path, t.path_is_relative
), begun AS (
    INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, end_snapshot, schema_id, table_name, path,
        path_is_relative)
    SELECT table_id, table_uuid, %(at)s, NULL, new_id, table_name, path, path_is_relative FROM ended
), versions AS (
    INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id)
    SELECT %(at)s, %(schema_version)s, table_id FROM ended
)
SELECT new_id, table_id, table_name FROM ended ORDER BY table_id;

-- move_views: the same of views; what their queries name stays as it is
WITH moved AS (
    SELECT * FROM unnest(%(old_ids)s::bigint[], %(new_ids)s::bigint[]) AS m (old_id, new_id)
), ended AS (
    UPDATE ducklake_view v SET end_snapshot = %(at)s FROM moved m
    WHERE v.schema_id = m.old_id AND v.end_snapshot IS NULL
    RETURNING v.view_id, v.view_uuid, m.new_id, v.view_name, v.dialect, v.sql, v.column_aliases
), begun AS (
    INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, dialect, sql,
        column_aliases)
    SELECT view_id, view_uuid, %(at)s, NULL, new_id, view_name, dialect, sql, column_aliases FROM ended
)
SELECT new_id, view_id, view_name FROM ended ORDER BY view_id;

-- move_macros: the same of macros; (new schema, kind, name)
WITH moved AS (
    SELECT * FROM unnest(%(old_ids)s::bigint[], %(new_ids)s::bigint[]) AS m (old_id, new_id)
), ended AS (
    UPDATE ducklake_macro c SET end_snapshot = %(at)s FROM moved m
    WHERE c.schema_id = m.old_id AND c.end_snapshot IS NULL
    RETURNING c.macro_id, m.new_id, c.macro_name
), begun AS (
    INSERT INTO ducklake_macro (schema_id, macro_id, macro_name, begin_snapshot, end_snapshot)
    SELECT new_id, macro_id, macro_name, %(at)s, NULL FROM ended
)
SELECT DISTINCT e.new_id, i.type, e.macro_name FROM ended e JOIN ducklake_macro_impl i USING (macro_id) ORDER BY 3, 1;

-- move_column_tags: the tags of the views' columns end with their rows, and begin again
SELECT duckicelake_end_view_column_tags(view_id, %(at)s, true) FROM unnest(%(view_ids)s::bigint[]) AS v (view_id);

-- forget_old_names: of schemas from which nothing can be brought back any more
DELETE FROM duckicelake_moved_schema m WHERE NOT EXISTS (
    SELECT FROM duckicelake_dropped d WHERE d.kind = 'namespace' AND d.object_id = m.schema_id)
  AND NOT EXISTS (
    SELECT FROM duckicelake_dropped d JOIN ducklake_table t ON t.table_id = d.object_id
    WHERE d.kind = 'table' AND t.schema_id = m.schema_id)
  AND NOT EXISTS (
    SELECT FROM duckicelake_dropped d JOIN ducklake_view v ON v.view_id = d.object_id
    WHERE d.kind = 'view' AND v.schema_id = m.schema_id);

-- move_dropped: what was dropped in the namespace, or below it, goes by the new name, but for a namespace of the same name
-- that was dropped with what was in it
WITH holding AS (
    SELECT d.object_id AS schema_id FROM duckicelake_dropped d WHERE d.kind = 'namespace'
    UNION
    SELECT t.schema_id FROM duckicelake_dropped d
    JOIN ducklake_table t ON t.table_id = d.object_id AND t.end_snapshot = d.snapshot_id WHERE d.kind = 'table'
    UNION
    SELECT v.schema_id FROM duckicelake_dropped d
    JOIN ducklake_view v ON v.view_id = d.object_id AND v.end_snapshot = d.snapshot_id WHERE d.kind = 'view'
), named AS (
    SELECT s.schema_id, coalesce(m.name, s.schema_name) AS name
    FROM holding h JOIN duckicelake_schemas() s USING (schema_id) LEFT JOIN duckicelake_moved_schema m USING (schema_id)
    WHERE s.end_snapshot IS NOT NULL AND NOT s.is_nested
)
INSERT INTO duckicelake_moved_schema AS known (schema_id, name)
SELECT schema_id, %(to_name)s || substr(name, length(%(from_name)s) + 1) FROM named
WHERE duckicelake_is_within(name, %(from_name)s) AND NOT (name = %(from_name)s AND EXISTS (
    SELECT FROM duckicelake_dropped d WHERE d.kind = 'namespace' AND d.object_id = schema_id))
ON CONFLICT (schema_id) DO UPDATE SET name = excluded.name;

-- naming_views: (schema, view, DuckDB's SQL, Iceberg's current version) of live views whose texts have this word
SELECT s.schema_name, v.view_name, v.sql, (
    SELECT each.version FROM json_array_elements(k.metadata -> 'versions') AS each (version)
    WHERE each.version ->> 'version-id' = k.metadata ->> 'current-version-id' LIMIT 1)
FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id) LEFT JOIN duckicelake_view k USING (view_id)
WHERE v.end_snapshot IS NULL
  AND (strpos(lower(v.sql), lower(%(word)s)) > 0 OR strpos(lower((k.metadata -> 'versions')::text), lower(%(word)s)) > 0)
ORDER BY s.schema_name COLLATE "C", v.view_name COLLATE "C";
