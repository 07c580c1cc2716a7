-- refuse: define what refuses to go on while a table of inlined rows isn't covered. DuckDB would take it for one that isn't
-- there, and show rows that were deleted
CREATE OR REPLACE FUNCTION {schema}.duckicelake_refuse_uncovered(name text) RETURNS bigint
LANGUAGE plpgsql STABLE SET search_path = {schema}, pg_temp AS $body$
BEGIN
    RAISE EXCEPTION 'Logins may not read % yet: try again in a second', name USING ERRCODE = 'DILC1';
END $body$;

-- reads_of: define what a login may read of one kind: the ids of tables, views, schemas, macros, of all but macros
-- (object), or 1 as long as the login lasts (lake), and an error while a table of its inlined rows isn't covered (ready).
-- Grants are read as the server reads them. Tables with policies are left out, for whomever these are
CREATE OR REPLACE FUNCTION {schema}.duckicelake_login_reads_of(text, text) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
WITH login AS MATERIALIZED (
    SELECT l.principal_id, l.token_groups, l.namespaces, l.is_granted, l.within, EXISTS (
        SELECT FROM {governance}duckicelake_warehouse_option o
        WHERE o.warehouse_id = {warehouse_id} AND o.name = 'grants' AND o.value = 'on') AS has_grants
    FROM {governance}duckicelake_duckdb_login l LEFT JOIN {governance}duckicelake_principal p USING (principal_id)
    WHERE l.role_name = $1 AND l.warehouse_id = {warehouse_id} AND l.expires_at > clock_timestamp()
      AND p.is_disabled IS NOT TRUE
),
held (object_kind, object_id, privilege, grantee_id, schema_name, name) AS MATERIALIZED (
    {held}
),
granted AS MATERIALIZED (SELECT DISTINCT object_kind, object_id, schema_name FROM held WHERE privilege IN ('select', 'ownership')),
live AS MATERIALIZED (SELECT schema_id, schema_name FROM duckicelake_schemas() WHERE end_snapshot IS NULL),
scoped AS MATERIALIZED (
    SELECT s.schema_id, s.schema_name, l.has_grants FROM live s CROSS JOIN login l
    WHERE (l.namespaces IS NULL OR l.has_grants AND l.is_granted
           OR EXISTS (SELECT FROM unnest(l.namespaces) n WHERE duckicelake_is_within(s.schema_name, n)))
      AND (l.within IS NULL OR EXISTS (SELECT FROM unnest(l.within) n WHERE duckicelake_is_within(s.schema_name, n)))
),
whole AS MATERIALIZED (
    SELECT s.schema_id FROM scoped s
    WHERE NOT s.has_grants OR EXISTS (
        SELECT FROM granted g WHERE g.object_kind = 'warehouse'
        OR g.object_kind = 'namespace' AND duckicelake_is_within(s.schema_name, g.schema_name))
),
readable AS MATERIALIZED (
    SELECT 'table' AS kind, t.table_id AS id FROM ducklake_table t JOIN scoped s USING (schema_id)
    WHERE t.end_snapshot IS NULL AND (s.schema_id IN (SELECT schema_id FROM whole) OR s.has_grants AND t.table_id IN (
        SELECT object_id FROM granted WHERE object_kind = 'table'))
      AND t.table_id NOT IN ({guarded})
    UNION ALL
    SELECT 'view', v.view_id FROM ducklake_view v JOIN scoped s USING (schema_id)
    WHERE v.end_snapshot IS NULL AND (s.schema_id IN (SELECT schema_id FROM whole) OR s.has_grants AND v.view_id IN (
        SELECT object_id FROM granted WHERE object_kind = 'view'))
),
uncovered AS MATERIALIZED (
    SELECT c.relname::text AS name, substring(c.relname FROM '^ducklake_inlined_(?:data|delete)_(\d+)')::bigint AS table_id
    FROM pg_class c
    WHERE c.relname BETWEEN 'ducklake_inlined_d' AND 'ducklake_inlined_e' AND c.relkind = 'r'
      AND c.relnamespace = {schema_text}::regnamespace
      AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'duckicelake_logins')
),
-- DuckDB needs the schemas of all snapshots in which what it reads was there.
placed AS (
    SELECT schema_id FROM whole
    UNION SELECT t.schema_id FROM ducklake_table t JOIN readable r ON r.kind = 'table' AND r.id = t.table_id
    UNION SELECT v.schema_id FROM ducklake_view v JOIN readable r ON r.kind = 'view' AND r.id = v.view_id
)
SELECT 1 FROM login WHERE $2 = 'lake'
UNION ALL SELECT CASE WHEN u.name IS NULL THEN 1 ELSE duckicelake_refuse_uncovered(u.name) END
FROM login LEFT JOIN LATERAL (
    SELECT uncovered.name FROM uncovered JOIN readable r ON r.kind = 'table' AND r.id = uncovered.table_id LIMIT 1
) u ON true WHERE $2 = 'ready'
UNION ALL SELECT id FROM readable WHERE readable.kind = $2 OR $2 = 'object'
UNION ALL SELECT schema_id FROM placed WHERE $2 IN ('schema', 'object')
UNION ALL SELECT m.macro_id FROM ducklake_macro m JOIN whole USING (schema_id) WHERE m.end_snapshot IS NULL AND $2 = 'macro'
$body$;

-- reads: define what the session's own login may read; session_user is who logged in, whatever role it has taken since
CREATE OR REPLACE FUNCTION {schema}.duckicelake_login_reads(kind text) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {schema}, pg_temp
AS $body$ SELECT duckicelake_login_reads_of(session_user::text, $1) $body$;

-- close_functions: let no one but the server call what runs with its rights, and logins the one function that is theirs
DO $do$
DECLARE object record;
BEGIN
    FOR object IN
        SELECT p.oid::regprocedure AS name FROM pg_proc p
        WHERE p.pronamespace = {schema_text}::regnamespace AND starts_with(p.proname, 'duckicelake_') AND p.prosecdef
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', object.name);
    END LOOP;
END $do$;
GRANT EXECUTE ON FUNCTION {schema}.duckicelake_login_reads(text) TO {group};
GRANT USAGE ON SCHEMA {schema} TO {group};

-- cover: narrow a table for logins, and for no one else. Its owner isn't asked at all
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS duckicelake_everyone ON {table};
DROP POLICY IF EXISTS duckicelake_logins ON {table};
CREATE POLICY duckicelake_everyone ON {table} USING (true) WITH CHECK (true);
CREATE POLICY duckicelake_logins ON {table} AS RESTRICTIVE TO {group} USING ({condition});
GRANT SELECT ON {table} TO {group};

-- sign: note that all rules are in force
COMMENT ON FUNCTION {schema}.duckicelake_login_reads(text) IS {digest};

-- digest: which rules are in force
SELECT obj_description(to_regprocedure(%(name)s), 'pg_proc');

-- group: the role that all logins to the lake of this schema are in, and whether it is there
SELECT name, EXISTS (SELECT FROM pg_roles WHERE rolname = name)
FROM (SELECT 'duckicelake_logins_' || left(md5(current_database() || '/' || %(schema)s), 12) AS name) named;

-- tables: DuckLake's own tables in a schema, without those of inlined rows
SELECT relname::text FROM pg_class
WHERE relnamespace = to_regnamespace(quote_ident(%(schema)s)) AND relkind = 'r' AND relname = ANY(%(names)s);

-- inlined: tables of inlined rows and deletes that aren't covered yet, each with the table whose rows they are
SELECT c.relname::text, substring(c.relname FROM '^ducklake_inlined_(?:data|delete)_(\d+)')::bigint
FROM pg_class c
WHERE c.relname BETWEEN 'ducklake_inlined_d' AND 'ducklake_inlined_e' AND c.relkind = 'r'
  AND c.relnamespace = to_regnamespace(quote_ident(%(schema)s))
  AND c.relname ~ '^ducklake_inlined_(data_\d+_\d+|delete_\d+)$'
  AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'duckicelake_logins');

-- powers: what keeps the server from making logins, or logins from being narrow: the server's role; whether it may make
-- roles; schemas in which every role may make things; side tables that every role may read
SELECT current_user::text, (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user),
       ARRAY(SELECT quote_ident(n.nspname) FROM pg_namespace n CROSS JOIN aclexplode(n.nspacl) a
             WHERE a.grantee = 0 AND a.privilege_type = 'CREATE' ORDER BY 1),
       ARRAY(SELECT c.oid::regclass::text FROM pg_class c CROSS JOIN aclexplode(c.relacl) a
             WHERE a.grantee = 0 AND c.relkind IN ('r', 'v', 'S') AND c.relname ~ '^(ducklake|duckicelake)_' ORDER BY 1);

-- schema: the schema of the lake's tables in Postgres
SELECT current_schema()::text;
