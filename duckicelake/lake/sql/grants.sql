-- versions: the version of principals, grants and policies, whether a warehouse has grants on, of which schema version the
-- lake is, whether the warehouse has policies, and of which state of its registry its copies of principals are
SELECT (SELECT version FROM {governance}duckicelake_governance),
       EXISTS (SELECT FROM {governance}duckicelake_warehouse_option
               WHERE warehouse_id = %(warehouse_id)s AND name = 'grants' AND value = 'on'),
       (SELECT schema_version FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1),
       EXISTS (SELECT FROM {governance}duckicelake_policy WHERE warehouse_id = %(warehouse_id)s),
       (SELECT copied FROM duckicelake_registry);

-- held: what a principal holds in a warehouse by itself, its groups and all roles that it is in, with today's names
WITH RECURSIVE held_by AS (
    SELECT principal_id FROM {governance}duckicelake_principal
    WHERE NOT is_disabled AND (principal_id = %(principal_id)s OR kind = 'group' AND name = ANY(%(groups)s))
    UNION
    SELECT m.container_id FROM held_by h JOIN {governance}duckicelake_membership m ON m.member_id = h.principal_id
    JOIN {governance}duckicelake_principal p ON p.principal_id = m.container_id AND NOT p.is_disabled
),
granted AS (
    SELECT g.object_kind, g.object_id, g.privilege, g.grantee_id
    FROM held_by h JOIN {governance}duckicelake_grant g ON g.grantee_id = h.principal_id
    WHERE g.warehouse_id = %(warehouse_id)s
    UNION
    SELECT 'warehouse', 0, 'ownership', p.principal_id
    FROM held_by h JOIN {governance}duckicelake_principal p USING (principal_id)
    WHERE p.kind = 'role' AND p.name = 'admin'
),
schemas AS MATERIALIZED (SELECT schema_id, schema_name FROM duckicelake_schemas() WHERE end_snapshot IS NULL)
SELECT g.object_kind, g.object_id, g.privilege, g.grantee_id, s.schema_name, NULL
FROM granted g LEFT JOIN schemas s ON g.object_kind = 'namespace' AND s.schema_id = g.object_id
WHERE g.object_kind IN ('warehouse', 'namespace')
UNION ALL
SELECT g.object_kind, g.object_id, g.privilege, g.grantee_id, s.schema_name, t.table_name
FROM granted g LEFT JOIN ducklake_table t ON t.table_id = g.object_id AND t.end_snapshot IS NULL
LEFT JOIN schemas s USING (schema_id)
WHERE g.object_kind = 'table'
UNION ALL
SELECT g.object_kind, g.object_id, g.privilege, g.grantee_id, s.schema_name, v.view_name
FROM granted g LEFT JOIN ducklake_view v ON v.view_id = g.object_id AND v.end_snapshot IS NULL
LEFT JOIN schemas s USING (schema_id)
WHERE g.object_kind = 'view';

-- find_principal: the principal of a name
SELECT principal_id, kind, scopes, is_disabled FROM {governance}duckicelake_principal WHERE name = %(name)s;

-- find_login: the id of the user or service of a name whom no issuer names otherwise
SELECT principal_id FROM {governance}duckicelake_principal
WHERE name = %(name)s AND kind IN ('user', 'service') AND issuer IS NULL;

-- memberships: (member, container, name of the container) on the ways from a principal and its groups to all roles
WITH RECURSIVE held_by AS (
    SELECT principal_id FROM {governance}duckicelake_principal
    WHERE NOT is_disabled AND (principal_id = %(principal_id)s OR kind = 'group' AND name = ANY(%(groups)s))
    UNION
    SELECT m.container_id FROM held_by h JOIN {governance}duckicelake_membership m ON m.member_id = h.principal_id
    JOIN {governance}duckicelake_principal p ON p.principal_id = m.container_id AND NOT p.is_disabled
)
SELECT h.principal_id, p.name, m.container_id FROM held_by h
JOIN {governance}duckicelake_principal p USING (principal_id)
LEFT JOIN {governance}duckicelake_membership m ON m.member_id = h.principal_id;

-- find_object: the id of a live object by its name
SELECT CASE %(kind)s
    WHEN 'namespace' THEN (
        SELECT schema_id FROM duckicelake_schemas() WHERE end_snapshot IS NULL AND schema_name = %(schema_name)s)
    WHEN 'table' THEN (
        SELECT t.table_id FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
        WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL
        AND s.schema_name = %(schema_name)s AND t.table_name = %(name)s)
    ELSE (
        SELECT v.view_id FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id)
        WHERE v.end_snapshot IS NULL AND s.end_snapshot IS NULL
        AND s.schema_name = %(schema_name)s AND v.view_name = %(name)s)
END;

-- grant: give privileges on an object; those that are there stay as they are
INSERT INTO {governance}duckicelake_grant
    (grantee_id, warehouse_id, object_kind, object_id, privilege, granted_by, granted_at)
SELECT principal_id, %(warehouse_id)s, %(kind)s, %(object_id)s, privilege, %(by)s, now()
FROM {governance}duckicelake_principal, unnest(%(privileges)s::text[]) AS given (privilege)
WHERE name = %(grantee)s
ON CONFLICT DO NOTHING RETURNING privilege;

-- revoke: take privileges on an object
DELETE FROM {governance}duckicelake_grant g USING {governance}duckicelake_principal p
WHERE p.principal_id = g.grantee_id AND p.name = %(grantee)s AND g.warehouse_id = %(warehouse_id)s
  AND g.object_kind = %(kind)s AND g.object_id = %(object_id)s AND g.privilege = ANY(%(privileges)s)
RETURNING g.privilege;

-- grants: a page of what is granted in a warehouse, of one principal or all, on one object or all, with today's names
WITH schemas AS MATERIALIZED (SELECT schema_id, schema_name FROM duckicelake_schemas() WHERE end_snapshot IS NULL),
g AS MATERIALIZED (
    SELECT p.name, p.kind, g.object_kind, g.object_id, g.privilege, g.granted_by, g.granted_at
    FROM {governance}duckicelake_grant g JOIN {governance}duckicelake_principal p ON p.principal_id = g.grantee_id
    WHERE g.warehouse_id = %(warehouse_id)s
      AND (%(grantee)s::text IS NULL OR p.name = %(grantee)s)
      AND (%(kind)s::text IS NULL OR g.object_kind = %(kind)s AND g.object_id = %(object_id)s)
      AND (%(after_grantee)s::text IS NULL
           OR (p.name COLLATE "C", g.object_kind COLLATE "C", g.object_id, g.privilege COLLATE "C")
              > (%(after_grantee)s::text, %(after_kind)s::text, %(after_id)s::bigint, %(after_privilege)s::text))
    ORDER BY p.name COLLATE "C", g.object_kind COLLATE "C", g.object_id, g.privilege COLLATE "C"
    LIMIT %(limit)s::bigint
)
SELECT g.name, g.kind, g.object_kind, g.object_id, g.privilege, g.granted_by, g.granted_at,
       coalesce(s.schema_name, ts.schema_name, vs.schema_name), coalesce(t.table_name, v.view_name)
FROM g
LEFT JOIN schemas s ON g.object_kind = 'namespace' AND s.schema_id = g.object_id
LEFT JOIN ducklake_table t ON g.object_kind = 'table' AND t.table_id = g.object_id AND t.end_snapshot IS NULL
LEFT JOIN schemas ts ON ts.schema_id = t.schema_id
LEFT JOIN ducklake_view v ON g.object_kind = 'view' AND v.view_id = g.object_id AND v.end_snapshot IS NULL
LEFT JOIN schemas vs ON vs.schema_id = v.schema_id
ORDER BY g.name COLLATE "C", g.object_kind COLLATE "C", g.object_id, g.privilege COLLATE "C";

-- own_new: make a principal the owner of what this transaction has made under these names; a namespace with others below
-- it, which stood without one, gets none: its owner would own those, too
WITH named AS MATERIALIZED (SELECT * FROM unnest(%(parents)s::text[], %(names)s::text[], %(whole)s::text[]) AS n (parent, name, whole)),
schemas AS MATERIALIZED (SELECT schema_id, schema_name, begin_snapshot FROM duckicelake_schemas() WHERE end_snapshot IS NULL),
made AS (
    SELECT 'namespace' AS kind, s.schema_id AS id FROM named n JOIN schemas s ON s.schema_name = n.whole
    WHERE s.begin_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot)
      AND NOT EXISTS (SELECT FROM schemas o WHERE starts_with(o.schema_name, s.schema_name || '.'))
    UNION ALL
    SELECT 'table', t.table_id FROM named n JOIN schemas s ON s.schema_name = n.parent
    JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = n.name AND t.end_snapshot IS NULL
    WHERE t.xmin = pg_current_xact_id()::xid
      AND NOT EXISTS (SELECT FROM ducklake_table b WHERE b.table_id = t.table_id AND b.begin_snapshot < t.begin_snapshot)
    UNION ALL
    SELECT 'view', v.view_id FROM named n JOIN schemas s ON s.schema_name = n.parent
    JOIN ducklake_view v ON v.schema_id = s.schema_id AND v.view_name = n.name AND v.end_snapshot IS NULL
    WHERE v.xmin = pg_current_xact_id()::xid
      AND NOT EXISTS (SELECT FROM ducklake_view b WHERE b.view_id = v.view_id AND b.begin_snapshot < v.begin_snapshot)
)
INSERT INTO {governance}duckicelake_grant
    (grantee_id, warehouse_id, object_kind, object_id, privilege, granted_by, granted_at)
SELECT p.principal_id, %(warehouse_id)s, made.kind, made.id, 'ownership', p.name, now()
FROM made, {governance}duckicelake_principal p
WHERE p.principal_id = %(principal_id)s AND p.kind IN ('user', 'service') AND NOT EXISTS (
    SELECT FROM {governance}duckicelake_grant g
    WHERE (g.warehouse_id, g.object_kind, g.object_id) = (%(warehouse_id)s, made.kind, made.id))
ON CONFLICT DO NOTHING;

-- move_grants: let what was granted on one namespace be granted on another, as that which brings it back
UPDATE {governance}duckicelake_grant SET object_id = %(to_id)s
WHERE warehouse_id = %(warehouse_id)s AND object_kind = 'namespace' AND object_id = %(from_id)s;

-- set_option: set an option of a warehouse
INSERT INTO {governance}duckicelake_warehouse_option (warehouse_id, name, value)
VALUES (%(warehouse_id)s, %(name)s, %(value)s)
ON CONFLICT (warehouse_id, name) DO UPDATE SET value = excluded.value;

-- lock_warehouses: let one transaction at a time change the registry of warehouses
LOCK TABLE {governance}duckicelake_warehouse IN SHARE ROW EXCLUSIVE MODE;

-- options: the options of a warehouse, without whether grants are on
SELECT name, value FROM {governance}duckicelake_warehouse_option WHERE warehouse_id = %(warehouse_id)s AND name <> 'grants';

-- drop_options: let options of a warehouse be what they are by default
DELETE FROM {governance}duckicelake_warehouse_option
WHERE warehouse_id = %(warehouse_id)s AND name = ANY(%(names)s::text[]);

-- has_option: whether an option of a warehouse is on
SELECT EXISTS (SELECT FROM {governance}duckicelake_warehouse_option
               WHERE warehouse_id = %(warehouse_id)s AND name = %(name)s AND value = 'on');

-- definer: whose rights a view lends, and for which definition
SELECT p.principal_id, p.name, p.scopes, d.definition
FROM {governance}duckicelake_definer d JOIN {governance}duckicelake_principal p USING (principal_id)
WHERE d.warehouse_id = %(warehouse_id)s AND d.view_id = %(view_id)s AND NOT p.is_disabled;

-- record_definer: let a view lend a principal's rights
INSERT INTO {governance}duckicelake_definer (warehouse_id, view_id, principal_id, definition)
VALUES (%(warehouse_id)s, %(view_id)s, %(principal_id)s, %(definition)s)
ON CONFLICT (warehouse_id, view_id) DO UPDATE
SET principal_id = excluded.principal_id, definition = excluded.definition, recorded = clock_timestamp();

-- forget_definers: let views lend nothing
DELETE FROM {governance}duckicelake_definer
WHERE warehouse_id = %(warehouse_id)s AND view_id = ANY(%(view_ids)s::bigint[]);

-- first_schema: the schema of the first warehouse, on whose connection this runs
SELECT current_schema();
