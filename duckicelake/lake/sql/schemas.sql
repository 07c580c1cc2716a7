-- live: schemas that exist now, in code point order
SELECT schema_name, schema_id, is_nested FROM duckicelake_schemas()
WHERE end_snapshot IS NULL ORDER BY schema_name COLLATE "C";

-- insert_schema: a schema that exists from a snapshot on; a renamed one keeps its folder, which isn't shared then
INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, schema_name, path, path_is_relative)
SELECT %(schema_id)s, %(uuid)s, %(snapshot_id)s, %(name)s, CASE WHEN EXISTS (
    SELECT FROM duckicelake_schemas() WHERE path = %(path)s AND path_is_relative AND end_snapshot IS NULL
) THEN %(free_path)s ELSE %(path)s END, true;

-- end_schema: a schema no longer exists from a snapshot on
UPDATE ducklake_schema SET end_snapshot = %(snapshot_id)s WHERE schema_id = %(schema_id)s AND end_snapshot IS NULL;

-- contents: what a schema holds now, but for the namespaces below it that aren't nested in it
SELECT 'namespace ' || schema_name FROM duckicelake_schemas() WHERE parent_id = %(schema_id)s AND end_snapshot IS NULL
UNION ALL
SELECT 'table ' || table_name FROM ducklake_table WHERE schema_id = %(schema_id)s AND end_snapshot IS NULL
UNION ALL
SELECT 'view ' || view_name FROM ducklake_view WHERE schema_id = %(schema_id)s AND end_snapshot IS NULL
UNION ALL
SELECT 'macro ' || macro_name FROM ducklake_macro WHERE schema_id = %(schema_id)s AND end_snapshot IS NULL
ORDER BY 1;

-- properties: what Iceberg clients set on a namespace
SELECT properties FROM duckicelake_namespace WHERE schema_id = %(schema_id)s;

-- set_properties: replace the properties of a namespace
INSERT INTO duckicelake_namespace (schema_id, properties) VALUES (%(schema_id)s, %(properties)s)
ON CONFLICT (schema_id) DO UPDATE SET properties = excluded.properties;

-- delete_properties: forget a namespace's properties
DELETE FROM duckicelake_namespace WHERE schema_id = %(schema_id)s;
