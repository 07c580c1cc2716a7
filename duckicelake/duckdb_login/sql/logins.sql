-- count: how many logins a principal has in a warehouse
SELECT count(*) FROM {governance}duckicelake_duckdb_login
WHERE principal = %(principal)s AND warehouse_id = %(warehouse_id)s AND expires_at > clock_timestamp();

-- insert: note a login, before its role is made in the same transaction
INSERT INTO {governance}duckicelake_duckdb_login
    (role_name, warehouse_id, principal_id, principal, token_groups, namespaces, is_granted, within, expires_at)
VALUES (%(role_name)s, %(warehouse_id)s, %(principal_id)s, %(principal)s, %(groups)s, %(namespaces)s, %(is_granted)s,
        %(within)s, clock_timestamp() + make_interval(secs => %(seconds)s))
RETURNING expires_at;

-- find: a login of a principal
SELECT role_name FROM {governance}duckicelake_duckdb_login
WHERE role_name = %(role_name)s AND principal = %(principal)s AND warehouse_id = %(warehouse_id)s;

-- delete: from now on the login reads nothing
DELETE FROM {governance}duckicelake_duckdb_login WHERE role_name = %(role_name)s;

-- roles: roles that are logins to a lake of this database, its schema, and whether the login is over
SELECT r.role_name, r.schema_name, coalesce(l.expires_at <= clock_timestamp(), true)
FROM (
    SELECT DISTINCT m.rolname::text AS role_name, n.nspname::text AS schema_name
    FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid AND c.relname = 'ducklake_snapshot'
    JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN unnest(p.polroles) AS g (oid)
    JOIN pg_auth_members a ON a.roleid = g.oid JOIN pg_roles m ON m.oid = a.member
    WHERE p.polname = 'duckicelake_logins' AND starts_with(m.rolname, 'duckicelake_login_')
) r LEFT JOIN {governance}duckicelake_duckdb_login l USING (role_name);

-- version: of principals and grants
SELECT version FROM {governance}duckicelake_governance;

-- overstaying: sessions that have kept a transaction open for too long, or hold an advisory lock
SELECT a.pid FROM pg_stat_activity a
WHERE a.usename = ANY(%(roles)s) AND (
    a.xact_start < clock_timestamp() - make_interval(secs => %(seconds)s)
    OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory'));

-- reach: the ids of all tables and views that a login may read
SELECT {lake}duckicelake_login_reads_of(%(role_name)s, kind) FROM unnest(ARRAY['table', 'view']) AS k (kind);

-- live: whether one of some tables or views is still there
SELECT EXISTS (SELECT FROM {lake}ducklake_table WHERE table_id = ANY(%(ids)s) AND end_snapshot IS NULL)
    OR EXISTS (SELECT FROM {lake}ducklake_view WHERE view_id = ANY(%(ids)s) AND end_snapshot IS NULL);

-- connected: all sessions of one role
SELECT pid FROM pg_stat_activity WHERE usename = %(role_name)s;

-- terminate: end a session
SELECT pg_terminate_backend(%(pid)s);

-- tables: the live tables of the lake by full name of their schema, for the folders of their files
SELECT s.schema_name, t.table_name FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL ORDER BY 1, 2;
