-- lock: let one transaction at a time change the registry; others may read it
LOCK TABLE duckicelake_warehouse IN SHARE ROW EXCLUSIVE MODE;

-- warehouses: all of them, by name
SELECT warehouse_id, name, schema_name, location, is_adopted, state, created,
       profile_id, (SELECT p.name FROM duckicelake_storage_profile p WHERE p.profile_id = duckicelake_warehouse.profile_id),
       coalesce((SELECT json_object_agg(o.name, o.value) FROM duckicelake_warehouse_option o
                 WHERE o.warehouse_id = duckicelake_warehouse.warehouse_id AND o.name <> 'grants'), '{}'),
       database_url, database_secret, data_path
FROM duckicelake_warehouse ORDER BY duckicelake_warehouse.name;

-- insert: add a warehouse whose lake is still to be prepared
INSERT INTO duckicelake_warehouse (warehouse_id, name, schema_name, location, is_adopted, state, profile_id, database_url,
                                   database_secret, data_path)
VALUES (%(warehouse_id)s, %(name)s, %(schema_name)s, %(location)s, %(is_adopted)s, 'creating', %(profile_id)s,
        %(database_url)s, %(database_secret)s, %(data_path)s)
RETURNING warehouse_id, name, schema_name, location, is_adopted, state, created,
       profile_id, (SELECT p.name FROM duckicelake_storage_profile p WHERE p.profile_id = duckicelake_warehouse.profile_id),
       '{}'::json, database_url, database_secret, data_path;

-- set_state: what a warehouse is from now on
UPDATE duckicelake_warehouse SET state = %(state)s WHERE name = %(name)s
RETURNING warehouse_id, name, schema_name, location, is_adopted, state, created,
       profile_id, (SELECT p.name FROM duckicelake_storage_profile p WHERE p.profile_id = duckicelake_warehouse.profile_id),
       '{}'::json, database_url, database_secret, data_path;

-- set_database: by which URL the database of a warehouse is reached
UPDATE duckicelake_warehouse SET database_url = %(database_url)s, database_secret = %(database_secret)s
WHERE warehouse_id = %(warehouse_id)s;

-- set_data_path: where the lake of a warehouse that was adopted has DuckLake's files
UPDATE duckicelake_warehouse SET data_path = %(data_path)s WHERE warehouse_id = %(warehouse_id)s;

-- rename: change the name of a warehouse, and nothing else
UPDATE duckicelake_warehouse SET name = %(name)s WHERE warehouse_id = %(warehouse_id)s
RETURNING warehouse_id, name, schema_name, location, is_adopted, state, created,
       profile_id, (SELECT p.name FROM duckicelake_storage_profile p WHERE p.profile_id = duckicelake_warehouse.profile_id),
       '{}'::json, database_url, database_secret, data_path;

-- delete: forget a warehouse and its options
WITH gone AS (DELETE FROM duckicelake_warehouse WHERE name = %(name)s RETURNING warehouse_id)
DELETE FROM duckicelake_warehouse_option o USING gone WHERE o.warehouse_id = gone.warehouse_id;

-- find_schema: whether the database has a schema, whether that has a DuckLake catalog and side tables, and whether it is the
-- first warehouse's
SELECT n.oid IS NOT NULL, m.oid IS NOT NULL, s.oid IS NOT NULL, %(schema_name)s = current_schema()
FROM (SELECT %(schema_name)s::name AS name) given
LEFT JOIN pg_namespace n ON n.nspname = given.name
LEFT JOIN pg_class m ON m.relnamespace = n.oid AND m.relname = 'ducklake_metadata' AND m.relkind = 'r'
LEFT JOIN pg_class s ON s.relnamespace = n.oid AND s.relname = 'duckicelake_server' AND s.relkind = 'r';

-- schema_mark: for which warehouse a schema was made
SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %(schema_name)s;

-- lock_lake: wait for the transactions that write the lake, and let none begin
LOCK TABLE ducklake_snapshot IN ACCESS EXCLUSIVE MODE;

-- contents: how many tables, views and namespaces a lake has, without the namespace that each lake begins with
SELECT (SELECT count(*) FROM ducklake_table WHERE end_snapshot IS NULL),
       (SELECT count(*) FROM ducklake_view WHERE end_snapshot IS NULL),
       (SELECT count(*) FROM duckicelake_schemas() WHERE end_snapshot IS NULL AND schema_name <> 'main');
