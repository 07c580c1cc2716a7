-- Where a warehouse that was adopted has DuckLake's files. Whoever writes the lake's DuckLake tables can change its
-- DATA_PATH; the server uses no place that the registry doesn't have.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

ALTER TABLE duckicelake_warehouse ADD COLUMN data_path text;

-- Of lakes in other databases it isn't known here: `duckicelake adopt --warehouse` notes it.
DO $$
DECLARE
    adopted record;
    found   text;
BEGIN
    FOR adopted IN SELECT w.warehouse_id, w.schema_name FROM duckicelake_warehouse w
                   JOIN pg_namespace n ON n.nspname = w.schema_name
                   JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'ducklake_metadata'
                   WHERE w.is_adopted AND w.database_url IS NULL AND has_table_privilege(c.oid, 'SELECT') LOOP
        EXECUTE format('SELECT value FROM %I.ducklake_metadata WHERE key = ''data_path'' AND scope IS NULL LIMIT 1',
                       adopted.schema_name) INTO found;
        UPDATE duckicelake_warehouse SET data_path = found WHERE warehouse_id = adopted.warehouse_id;
    END LOOP;
END $$;
