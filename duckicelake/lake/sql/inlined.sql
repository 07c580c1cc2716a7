-- tables: tables of inlined rows, each with the snapshot whose columns it has
SELECT i.table_name, (
    SELECT max(v.begin_snapshot) FROM ducklake_schema_versions v
    WHERE v.table_id = i.table_id AND v.schema_version <= i.schema_version)
FROM ducklake_inlined_data_tables i
WHERE i.table_id = %(table_id)s
ORDER BY i.schema_version;

-- delete_table: whether a table has inlined deletes
SELECT to_regclass(%(name)s) IS NOT NULL;

-- column_types: the Postgres types of a table's columns, in order
SELECT a.attname, t.typname
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = quote_ident(%(name)s)::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;
