-- hold: become the only command that changes the format, as long as the session lasts
SELECT pg_try_advisory_lock(%(key)s, duckicelake_format_change_lake());

-- holder: the session that is at it
SELECT l.pid, a.usename::text, a.application_name, a.backend_start
FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid::bigint = %(key)s
  AND l.objid::bigint = (duckicelake_format_change_lake()::bigint & 4294967295)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- forget: what a command left that was killed
DELETE FROM duckicelake_format_change;

-- begin: refuse writers from now on
INSERT INTO duckicelake_format_change (backend, expires_at)
VALUES (pg_backend_pid(), clock_timestamp() + %(seconds)s * interval '1 second')
RETURNING token::text;

-- open: let the ATTACH with the token pass
UPDATE duckicelake_format_change
SET is_open = true, expires_at = clock_timestamp() + %(seconds)s * interval '1 second';

-- progress: when the ATTACH has migrated the lake, by which session, and whether it may still
SELECT migrated_at, migrated_by, expires_at > clock_timestamp() FROM duckicelake_format_change;

-- close: let writers go on
DELETE FROM duckicelake_format_change RETURNING migrated_at, migrated_by;

-- lockers: sessions that hold locks on the lake's tables, the longest transaction first; prepared ones have no session
SELECT l.pid, max(a.usename::text), max(a.application_name), max(host(a.client_addr)), max(a.state),
       round(extract(epoch FROM clock_timestamp() - min(a.xact_start)))::bigint,
       bool_or(l.mode <> 'AccessShareLock'), min(c.relname::text)
FROM pg_locks l
JOIN pg_class lake ON lake.oid = 'ducklake_snapshot'::regclass
JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = lake.relnamespace AND starts_with(c.relname, 'ducklake_')
LEFT JOIN pg_stat_activity a USING (pid)
WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND coalesce(a.backend_type, 'client backend') = 'client backend'
GROUP BY l.pid
ORDER BY min(a.xact_start) NULLS FIRST, l.pid;

-- blockers: sessions that the ATTACH waits for
SELECT DISTINCT blocker FROM pg_locks l
JOIN pg_class lake ON lake.oid = 'ducklake_snapshot'::regclass
JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = lake.relnamespace AND starts_with(c.relname, 'ducklake_'),
     unnest(pg_blocking_pids(l.pid)) AS blocker
WHERE l.locktype = 'relation' AND NOT l.granted AND l.mode = 'AccessExclusiveLock';

-- others: sessions in the database that aren't the server's, begun before a moment, but for one of them
SELECT pid, usename::text, application_name, host(client_addr), state, NULL::bigint, false, ''
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
  AND application_name IS DISTINCT FROM current_setting('application_name')
  AND backend_start < %(before)s AND pid IS DISTINCT FROM %(but)s
ORDER BY pid;

-- end_session: whether a session was asked to end
SELECT pg_terminate_backend(%(pid)s);

-- inlined: registered inlined tables with the names of their first three columns and of the later ones, the table that
-- they belong to, and whether that is dropped. No columns: the inlined table isn't there
SELECT i.table_name, coalesce(s.schema_name || '.' || t.table_name, 'table ' || i.table_id),
       NOT coalesce(t.is_live, false),
       ARRAY(SELECT attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum LIMIT 3),
       ARRAY(SELECT attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum OFFSET 3)
FROM ducklake_inlined_data_tables i
LEFT JOIN pg_class c ON c.oid = to_regclass(quote_ident(i.table_name))
LEFT JOIN (SELECT DISTINCT ON (table_id) table_id, table_name, schema_id, end_snapshot IS NULL AS is_live
           FROM ducklake_table ORDER BY table_id, begin_snapshot DESC) t USING (table_id)
LEFT JOIN duckicelake_schemas() s USING (schema_id)
ORDER BY 2, 1;

-- columns: names of the columns of DuckLake's own tables that the migration changes
SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
FROM pg_class c
JOIN pg_class lake ON lake.oid = 'ducklake_snapshot'::regclass AND lake.relnamespace = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relname IN ('ducklake_data_file', 'ducklake_delete_file', 'ducklake_view_column_tag')
GROUP BY c.relname;

-- rights: the owner of DuckLake's tables, this login, whether it may become the owner, whether the owner may create
-- tables in the schema and temporary ones, and tables that are another's
SELECT pg_get_userbyid(lake.relowner)::text, current_user::text, pg_has_role(lake.relowner, 'MEMBER'),
       has_schema_privilege(lake.relowner, lake.relnamespace, 'CREATE'),
       has_database_privilege(lake.relowner, current_database(), 'TEMP'),
       ARRAY(SELECT c.relname::text FROM pg_class c
             WHERE c.relnamespace = lake.relnamespace AND c.relkind = 'r' AND starts_with(c.relname, 'ducklake_')
               AND c.relowner <> lake.relowner ORDER BY 1)
FROM pg_class lake WHERE lake.oid = 'ducklake_snapshot'::regclass;

-- puffin: live delete files in Puffin
SELECT count(*) FROM ducklake_delete_file WHERE end_snapshot IS NULL AND lower(format) = 'puffin';

-- version: the lake's format
SELECT value FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL;
