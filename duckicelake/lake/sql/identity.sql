-- lake: who the lake of this database is, its warehouse, and the folders that were marked
SELECT lake_id::text, current_database()::text, current_schema()::text, warehouse, marked FROM duckicelake_lake;

-- database_name: of the database that a connection is to
SELECT current_database()::text;

-- shows_identifier: whether this login may ask for the next; not every service that speaks Postgres's language has it
SELECT coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE'), false);

-- system_identifier: of the cluster; a standby has that of its primary, an upgraded cluster another
SELECT system_identifier::text FROM pg_control_system();

-- record_warehouse: where all servers of the lake keep files
UPDATE duckicelake_lake SET warehouse = %(warehouse)s WHERE warehouse IS DISTINCT FROM %(warehouse)s;

-- record_marked: the folders that hold the lake's marker
UPDATE duckicelake_lake SET marked = %(folders)s::text[] WHERE marked <> %(folders)s::text[];

-- lock_servers: one server at a time compares its settings and registers
SELECT pg_advisory_xact_lock(%(key)s # {schema_key});

-- servers: those seen of late, with how many seconds ago that was
SELECT server_id, host, process, settings, extract(epoch FROM clock_timestamp() - seen_at)::float8
FROM duckicelake_server WHERE seen_at > clock_timestamp() - make_interval(secs => %(seconds)s);

-- see_server: note that a server runs, and forget those that don't any more
WITH gone AS (
    DELETE FROM duckicelake_server
    WHERE seen_at < clock_timestamp() - make_interval(secs => %(seconds)s) AND server_id <> %(server_id)s
)
INSERT INTO duckicelake_server VALUES (%(server_id)s, %(host)s, %(process)s, %(settings)s, clock_timestamp())
ON CONFLICT (server_id) DO UPDATE SET seen_at = excluded.seen_at;

-- forget_server: it has ended
DELETE FROM duckicelake_server WHERE server_id = %(server_id)s;

-- limits: most tables, most namespaces, and seconds for which what is dropped stays; a lake of an older version has the last
SELECT to_jsonb(l) ->> 'max_tables', to_jsonb(l) ->> 'max_namespaces', extract(epoch FROM l.drop_retention)
FROM duckicelake_lake l;

-- change_limits: set those that are given; null is the default
UPDATE duckicelake_lake SET
    max_tables = CASE WHEN %(has_tables)s THEN %(max_tables)s::bigint ELSE max_tables END,
    max_namespaces = CASE WHEN %(has_namespaces)s THEN %(max_namespaces)s::bigint ELSE max_namespaces END,
    drop_retention = CASE WHEN %(has_retention)s THEN coalesce(make_interval(secs => %(retention)s::float8), '7 days')
                          ELSE drop_retention END;
