-- exists: whether search_path reaches a DuckLake catalog
SELECT EXISTS (
    SELECT FROM pg_class metadata JOIN pg_class snapshot USING (relnamespace)
    WHERE metadata.oid = to_regclass('ducklake_metadata') AND metadata.relkind = 'r'
      AND snapshot.relname = 'ducklake_snapshot' AND snapshot.relkind = 'r');

-- options: the catalog's own facts; catalogs of the first formats have no scopes
SELECT option ->> 'key', option ->> 'value'
FROM (SELECT to_jsonb(m) AS option FROM ducklake_metadata m) options
WHERE option ->> 'scope' IS NULL;

-- has_macros: whether the format has macros, and whether a server has prepared the lake
SELECT to_regclass('ducklake_macro') IS NOT NULL, to_regproc('duckicelake_schemas') IS NOT NULL;

-- macros: full names of the macros that exist now
SELECT s.schema_name || '.' || duckicelake_escape_level(m.macro_name)
FROM ducklake_macro m JOIN duckicelake_schemas() s USING (schema_id)
WHERE m.end_snapshot IS NULL AND s.end_snapshot IS NULL
ORDER BY 1;

-- unprepared_macros: the same of a lake that lacks migrations
SELECT s.schema_name || '.' || m.macro_name
FROM ducklake_macro m JOIN ducklake_schema s USING (schema_id)
WHERE m.end_snapshot IS NULL AND s.end_snapshot IS NULL
ORDER BY 1;

-- contents: see `lake.contents.Contents`
WITH own AS (
    SELECT nullif(current_schema(), 'pg_catalog') AS name
), catalogs AS (
    SELECT n.oid, n.nspname, has_schema_privilege(n.oid, 'USAGE') AS is_open
    FROM pg_class metadata
    JOIN pg_class snapshot USING (relnamespace)
    JOIN pg_namespace n ON n.oid = metadata.relnamespace
    WHERE metadata.relname = 'ducklake_metadata' AND metadata.relkind = 'r'
      AND snapshot.relname = 'ducklake_snapshot' AND snapshot.relkind = 'r' AND NOT pg_is_other_temp_schema(n.oid)
), reached AS (
    SELECT catalogs.* FROM catalogs JOIN pg_class ON relnamespace = catalogs.oid
    WHERE pg_class.oid = to_regclass('ducklake_metadata')
), relations AS (
    SELECT c.oid, c.relname, c.relkind IN ('r', 'p', 'v', 'm', 'f') AS is_table,
           c.relname = ANY (%(tables)s) OR c.relname ~ '^(ducklake_inlined|duckicelake)_' AS is_ours
    FROM pg_class c
    WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = (SELECT name FROM own))
      AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S', 'c')
      AND NOT EXISTS (SELECT FROM pg_depend d
                      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
), functions AS (
    SELECT p.proname FROM pg_proc p
    WHERE starts_with(p.proname, 'duckicelake_')
      AND p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = (SELECT name FROM own))
)
SELECT (SELECT name::text FROM own),
       (SELECT nspname::text FROM reached),
       (SELECT coalesce(array_agg(nspname::text ORDER BY nspname), '{}') FROM catalogs
        WHERE oid NOT IN (SELECT oid FROM reached)),
       (SELECT NOT coalesce(bool_and(is_open), true) FROM catalogs WHERE oid NOT IN (SELECT oid FROM reached)),
       (SELECT coalesce(array_agg(DISTINCT name::text ORDER BY name::text), '{}')
        FROM (SELECT relname AS name FROM relations WHERE is_ours
              UNION ALL SELECT proname FROM functions) fragments
        WHERE NOT EXISTS (SELECT FROM reached)),
       (SELECT coalesce(array_agg(relname::text ORDER BY relname), '{}') FROM relations WHERE is_table AND NOT is_ours);

-- tables: which DuckLake tables a schema has
SELECT relname::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname = %(schema)s AND relkind = 'r' AND starts_with(relname, 'ducklake_');

-- format_columns: the columns of some DuckLake tables in a schema; none of a table that isn't there
SELECT c.relname::text, a.attname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND c.relname = ANY (%(tables)s)
  AND a.attnum > 0 AND NOT a.attisdropped;

-- require_known: DIUF1 unless the session knows the lake's format and, where the transaction may write, its migrations
SELECT duckicelake_require_known(current_setting('transaction_read_only') = 'off');

-- insert_initial_rows: an empty lake at snapshot 0, as DuckDB's extension makes it
WITH metadata AS (
    INSERT INTO ducklake_metadata (key, value)
    VALUES ('version', '1.0'), ('created_by', 'duckicelake'), ('data_path', %(data_path)s), ('encrypted', 'false')
), snapshot AS (
    INSERT INTO ducklake_snapshot VALUES (0, now(), 0, 1, 0)
), changes AS (
    INSERT INTO ducklake_snapshot_changes VALUES (0, 'created_schema:"main"', NULL, NULL, NULL)
)
INSERT INTO ducklake_schema VALUES (0, gen_random_uuid(), 0, NULL, 'main', 'main/', true);

-- create_tables: the tables of a DuckLake 1.0 catalog; DuckDB inserts by position, so the order of columns is format
CREATE TABLE ducklake_column (
    column_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint,
    table_id bigint,
    column_order bigint,
    column_name varchar,
    column_type varchar,
    initial_default varchar,
    default_value varchar,
    nulls_allowed boolean,
    parent_column bigint,
    default_value_type varchar,
    default_value_dialect varchar
);
CREATE TABLE ducklake_column_mapping (
    mapping_id bigint,
    table_id bigint,
    type varchar
);
CREATE TABLE ducklake_column_tag (
    table_id bigint,
    column_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint,
    key varchar,
    value varchar
);
CREATE TABLE ducklake_data_file (
    data_file_id bigint PRIMARY KEY,
    table_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint,
    file_order bigint,
    path varchar,
    path_is_relative boolean,
    file_format varchar,
    record_count bigint,
    file_size_bytes bigint,
    footer_size bigint,
    row_id_start bigint,
    partition_id bigint,
    encryption_key varchar,
    mapping_id bigint,
    partial_max bigint
);
CREATE TABLE ducklake_delete_file (
    delete_file_id bigint PRIMARY KEY,
    table_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint,
    data_file_id bigint,
    path varchar,
    path_is_relative boolean,
    format varchar,
    delete_count bigint,
    file_size_bytes bigint,
    footer_size bigint,
    encryption_key varchar,
    partial_max bigint
);
CREATE TABLE ducklake_file_column_stats (
    data_file_id bigint,
    table_id bigint,
    column_id bigint,
    column_size_bytes bigint,
    value_count bigint,
    null_count bigint,
    min_value varchar,
    max_value varchar,
    contains_nan boolean,
    extra_stats varchar
);
CREATE TABLE ducklake_file_partition_value (
    data_file_id bigint,
    table_id bigint,
    partition_key_index bigint,
    partition_value varchar
);
CREATE TABLE ducklake_file_variant_stats (
    data_file_id bigint,
    table_id bigint,
    column_id bigint,
    variant_path varchar,
    shredded_type varchar,
    column_size_bytes bigint,
    value_count bigint,
    null_count bigint,
    min_value varchar,
    max_value varchar,
    contains_nan boolean,
    extra_stats varchar
);
CREATE TABLE ducklake_files_scheduled_for_deletion (
    data_file_id bigint,
    path varchar,
    path_is_relative boolean,
    schedule_start timestamptz
);
CREATE TABLE ducklake_inlined_data_tables (
    table_id bigint,
    table_name varchar,
    schema_version bigint
);
CREATE TABLE ducklake_macro (
    schema_id bigint,
    macro_id bigint,
    macro_name varchar,
    begin_snapshot bigint,
    end_snapshot bigint
);
CREATE TABLE ducklake_macro_impl (
    macro_id bigint,
    impl_id bigint,
    dialect varchar,
    sql varchar,
    type varchar
);
CREATE TABLE ducklake_macro_parameters (
    macro_id bigint,
    impl_id bigint,
    column_id bigint,
    parameter_name varchar,
    parameter_type varchar,
    default_value varchar,
    default_value_type varchar
);
CREATE TABLE ducklake_metadata (
    key varchar NOT NULL,
    value varchar NOT NULL,
    scope varchar,
    scope_id bigint
);
CREATE TABLE ducklake_name_mapping (
    mapping_id bigint,
    column_id bigint,
    source_name varchar,
    target_field_id bigint,
    parent_column bigint,
    is_partition boolean
);
CREATE TABLE ducklake_partition_column (
    partition_id bigint,
    table_id bigint,
    partition_key_index bigint,
    column_id bigint,
    transform varchar
);
CREATE TABLE ducklake_partition_info (
    partition_id bigint,
    table_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint
);
CREATE TABLE ducklake_schema (
    schema_id bigint PRIMARY KEY,
    schema_uuid uuid,
    begin_snapshot bigint,
    end_snapshot bigint,
    schema_name varchar,
    path varchar,
    path_is_relative boolean
);
CREATE TABLE ducklake_schema_versions (
    begin_snapshot bigint,
    schema_version bigint,
    table_id bigint
);
CREATE TABLE ducklake_snapshot (
    snapshot_id bigint PRIMARY KEY,
    snapshot_time timestamptz,
    schema_version bigint,
    next_catalog_id bigint,
    next_file_id bigint
);
CREATE TABLE ducklake_snapshot_changes (
    snapshot_id bigint PRIMARY KEY,
    changes_made varchar,
    author varchar,
    commit_message varchar,
    commit_extra_info varchar
);
CREATE TABLE ducklake_sort_expression (
    sort_id bigint,
    table_id bigint,
    sort_key_index bigint,
    expression varchar,
    dialect varchar,
    sort_direction varchar,
    null_order varchar
);
CREATE TABLE ducklake_sort_info (
    sort_id bigint,
    table_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint
);
CREATE TABLE ducklake_table (
    table_id bigint,
    table_uuid uuid,
    begin_snapshot bigint,
    end_snapshot bigint,
    schema_id bigint,
    table_name varchar,
    path varchar,
    path_is_relative boolean
);
CREATE TABLE ducklake_table_column_stats (
    table_id bigint,
    column_id bigint,
    contains_null boolean,
    contains_nan boolean,
    min_value varchar,
    max_value varchar,
    extra_stats varchar
);
CREATE TABLE ducklake_table_stats (
    table_id bigint,
    record_count bigint,
    next_row_id bigint,
    file_size_bytes bigint
);
CREATE TABLE ducklake_tag (
    object_id bigint,
    begin_snapshot bigint,
    end_snapshot bigint,
    key varchar,
    value varchar
);
CREATE TABLE ducklake_view (
    view_id bigint,
    view_uuid uuid,
    begin_snapshot bigint,
    end_snapshot bigint,
    schema_id bigint,
    view_name varchar,
    dialect varchar,
    sql varchar,
    column_aliases varchar
);

-- keep_itself: let a new lake flush and compact its tables without being asked
UPDATE duckicelake_upkeep SET policies = '{"maintenance.automatic": "flush,compact"}';

-- tables_of: DuckLake's tables and their columns, but for those of inlined rows, and of other tables' inlined deletes
SELECT current_schema()::text, table_name::text, array_agg(column_name::text)
FROM information_schema.columns
WHERE table_schema = current_schema()
  AND (table_name = 'ducklake_inlined_delete_' || %(table_id)s::bigint
       OR starts_with(table_name, 'ducklake_') AND table_name !~ '^ducklake_inlined_(data|delete)_[0-9]+')
GROUP BY table_name ORDER BY table_name;
