-- other_owner: whose DuckLake's tables are, if not the current user's
SELECT rolname FROM pg_class JOIN pg_roles ON pg_roles.oid = relowner
WHERE pg_class.oid = 'ducklake_snapshot'::regclass AND rolname <> current_user;

-- strangers: DuckLake's tables that another role owns than ducklake_snapshot
SELECT c.relname::text, pg_get_userbyid(c.relowner)::text, pg_get_userbyid(lake.relowner)::text
FROM pg_class c JOIN pg_class lake ON lake.oid = 'ducklake_snapshot'::regclass AND lake.relnamespace = c.relnamespace
WHERE c.relkind = 'r' AND starts_with(c.relname, 'ducklake_') AND c.relowner <> lake.relowner
ORDER BY 1;

-- writable: the current user, the owner of DuckLake's tables, and whether the former has what the latter may
SELECT current_user::text, pg_get_userbyid(relowner)::text, pg_has_role(relowner, 'USAGE')
FROM pg_class WHERE oid = to_regclass('ducklake_snapshot');

-- trespassers: logins that may touch a side table though they are neither the server nor superusers
SELECT r.rolname::text, min(c.relname::text)
FROM pg_class c
JOIN pg_class lake ON lake.oid = 'ducklake_snapshot'::regclass AND lake.relnamespace = c.relnamespace
JOIN pg_roles r ON r.rolcanlogin AND NOT r.rolsuper AND NOT pg_has_role(r.oid, c.relowner, 'MEMBER')
WHERE c.relkind = 'r' AND starts_with(c.relname, 'duckicelake_')
  AND has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
GROUP BY 1 ORDER BY 1;

-- as_themselves: logins that write DuckLake's tables as members of their owner, but make tables of their own
SELECT r.rolname::text, owner.rolname::text
FROM pg_class lake
JOIN pg_roles owner ON owner.oid = lake.relowner
JOIN pg_class side ON side.oid = to_regclass('duckicelake_table')
JOIN pg_roles r ON r.rolcanlogin AND NOT r.rolsuper AND r.oid <> owner.oid
 AND pg_has_role(r.oid, owner.oid, 'MEMBER') AND NOT pg_has_role(r.oid, side.relowner, 'MEMBER')
WHERE lake.oid = 'ducklake_snapshot'::regclass AND lake.relowner <> side.relowner AND NOT EXISTS (
    SELECT FROM pg_db_role_setting s
    WHERE s.setrole = r.oid AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
      AND 'role=' || owner.rolname = ANY (s.setconfig))
ORDER BY 1;

-- half_readers: logins that may read DuckLake's snapshots but not all of its tables
SELECT r.rolname::text, min(c.relname::text)
FROM pg_class lake
JOIN pg_class c ON c.relnamespace = lake.relnamespace AND c.relkind = 'r' AND starts_with(c.relname, 'ducklake_')
JOIN pg_roles r ON r.rolcanlogin AND has_table_privilege(r.oid, lake.oid, 'SELECT')
WHERE lake.oid = 'ducklake_snapshot'::regclass AND NOT has_table_privilege(r.oid, c.oid, 'SELECT')
  AND NOT EXISTS (SELECT FROM pg_policy p CROSS JOIN unnest(p.polroles) AS narrowed (oid)  -- those are to read less
                  WHERE p.polrelid = lake.oid AND NOT p.polpermissive AND pg_has_role(r.oid, narrowed.oid, 'MEMBER'))
GROUP BY 1 ORDER BY 1;
