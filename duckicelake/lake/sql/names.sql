-- namespace_exists: whether a schema of the name, or one below it, is live
SELECT EXISTS (
    SELECT FROM duckicelake_schemas()
    WHERE end_snapshot IS NULL AND duckicelake_is_within(schema_name, %(schema_name)s));

-- place: the live DuckLake schema of a name, what DuckLake calls it, and whether it lies within another one
SELECT schema_id, recorded_name, is_nested FROM duckicelake_schemas()
WHERE schema_name = %(schema_name)s AND end_snapshot IS NULL;

-- taken: live tables and views of a schema whose name differs at most by case; `own_id` may respell its own
SELECT 'Table', table_name FROM ducklake_table
WHERE schema_id = %(schema_id)s AND end_snapshot IS NULL AND lower(table_name) = lower(%(name)s)
  AND (table_id IS DISTINCT FROM %(own_id)s::bigint OR table_name = %(name)s)
UNION ALL
SELECT 'View', view_name FROM ducklake_view
WHERE schema_id = %(schema_id)s AND end_snapshot IS NULL AND lower(view_name) = lower(%(name)s)
  AND (view_id IS DISTINCT FROM %(own_id)s::bigint OR view_name = %(name)s);
