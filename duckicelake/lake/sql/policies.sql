-- held: the policies that are for a principal, by its groups and roles, too, each with a table that it guards: the one
-- that it is on, or if that was dropped, the one that has its name now, of which nothing is shown; last, with the name that
-- the dropped one had
WITH RECURSIVE held_by AS (
    SELECT principal_id FROM {governance}duckicelake_principal
    WHERE NOT is_disabled AND (principal_id = %(principal_id)s OR kind = 'group' AND name = ANY(%(groups)s))
    UNION
    SELECT m.container_id FROM held_by h JOIN {governance}duckicelake_membership m ON m.member_id = h.principal_id
    JOIN {governance}duckicelake_principal p ON p.principal_id = m.container_id AND NOT p.is_disabled
),
schemas AS MATERIALIZED (SELECT schema_id, schema_name, end_snapshot FROM duckicelake_schemas()),
guard AS MATERIALIZED (
    SELECT y.policy_id, y.name, y.mask, y.filter, coalesce(y.table_id, c.table_id) AS table_id,
           coalesce(y.schema_name, c.schema_name) AS schema_name, coalesce(y.table_name, c.table_name) AS table_name,
           coalesce(y.column_id, c.column_id) AS column_id, coalesce(y.column_name, c.column_name) AS column_name
    FROM {governance}duckicelake_policy y LEFT JOIN {governance}duckicelake_policy_tag c USING (warehouse_id, tag)
    WHERE y.warehouse_id = %(warehouse_id)s AND coalesce(y.table_id, c.table_id) IS NOT NULL
      AND NOT EXISTS (SELECT FROM {governance}duckicelake_policy_principal e JOIN held_by USING (principal_id)
                      WHERE e.policy_id = y.policy_id AND e.is_exempt)
      AND (NOT EXISTS (SELECT FROM {governance}duckicelake_policy_principal o
                       WHERE o.policy_id = y.policy_id AND NOT o.is_exempt)
           OR EXISTS (SELECT FROM {governance}duckicelake_policy_principal o JOIN held_by USING (principal_id)
                      WHERE o.policy_id = y.policy_id AND NOT o.is_exempt))
),
placed AS MATERIALIZED (
    SELECT DISTINCT g.table_id, t.table_id IS NOT NULL AND t.end_snapshot IS NULL AS is_live,
           coalesce(s.schema_name, g.schema_name) AS schema_name, coalesce(t.table_name, g.table_name) AS table_name
    FROM (SELECT DISTINCT ON (table_id) table_id, schema_name, table_name FROM guard) g
    LEFT JOIN LATERAL (
        SELECT t.table_id, t.schema_id, t.table_name, t.end_snapshot FROM ducklake_table t WHERE t.table_id = g.table_id
        ORDER BY t.end_snapshot IS NULL DESC, t.begin_snapshot DESC LIMIT 1
    ) t ON true
    LEFT JOIN LATERAL (
        SELECT s.schema_name FROM schemas s WHERE s.schema_id = t.schema_id ORDER BY s.end_snapshot IS NULL DESC LIMIT 1
    ) s ON true
)
SELECT g.name, g.table_id, p.schema_name, p.table_name, false, g.column_id,
       coalesce(duckicelake_column_name(g.table_id, g.column_id), g.column_name), g.mask, g.filter
FROM guard g JOIN placed p USING (table_id)
UNION ALL
SELECT g.name, t.table_id, p.schema_name, p.table_name, true, NULL::bigint, NULL, NULL, NULL::jsonb
FROM guard g JOIN placed p USING (table_id) JOIN schemas s ON s.schema_name = p.schema_name AND s.end_snapshot IS NULL
JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = p.table_name AND t.end_snapshot IS NULL
WHERE NOT p.is_live
ORDER BY 1, 2;

-- newest: the highest id of a table, which later ones exceed
SELECT coalesce(max(table_id), 0) FROM ducklake_table;

-- trusted: whether a principal is in the role of engines that apply policies themselves
WITH RECURSIVE held_by AS (
    SELECT principal_id FROM {governance}duckicelake_principal
    WHERE NOT is_disabled AND (principal_id = %(principal_id)s OR kind = 'group' AND name = ANY(%(groups)s))
    UNION
    SELECT m.container_id FROM held_by h JOIN {governance}duckicelake_membership m ON m.member_id = h.principal_id
    JOIN {governance}duckicelake_principal p ON p.principal_id = m.container_id AND NOT p.is_disabled
)
SELECT EXISTS (SELECT FROM held_by JOIN {governance}duckicelake_principal USING (principal_id)
               WHERE kind = 'role' AND name = 'trusted-engine');

-- guarded: the ids of tables that have policies, for whomever, and of those that have the name of one that was dropped
WITH schemas AS MATERIALIZED (SELECT schema_id, schema_name, end_snapshot FROM duckicelake_schemas()),
guard AS MATERIALIZED (
    SELECT table_id, schema_name, table_name FROM {governance}duckicelake_policy
    WHERE warehouse_id = %(warehouse_id)s AND table_id IS NOT NULL
    UNION
    SELECT c.table_id, c.schema_name, c.table_name FROM {governance}duckicelake_policy y
    JOIN {governance}duckicelake_policy_tag c USING (warehouse_id, tag) WHERE y.warehouse_id = %(warehouse_id)s
)
SELECT table_id FROM guard
UNION
SELECT t.table_id FROM ducklake_table t JOIN schemas s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND EXISTS (
    SELECT FROM guard g
    LEFT JOIN LATERAL (
        SELECT l.schema_id, l.table_name, l.end_snapshot FROM ducklake_table l WHERE l.table_id = g.table_id
        ORDER BY l.end_snapshot IS NULL DESC, l.begin_snapshot DESC LIMIT 1
    ) l ON true
    LEFT JOIN LATERAL (
        SELECT p.schema_name FROM schemas p WHERE p.schema_id = l.schema_id ORDER BY p.end_snapshot IS NULL DESC LIMIT 1
    ) p ON true
    WHERE (l.schema_id IS NULL OR l.end_snapshot IS NOT NULL)
      AND coalesce(p.schema_name, g.schema_name) = s.schema_name AND coalesce(l.table_name, g.table_name) = t.table_name);

-- list: the policies of a warehouse, one of them, or those of a table, with today's names
SELECT y.policy_id, y.name, y.tag, y.table_id, t.table_id IS NOT NULL, coalesce(s.schema_name, y.schema_name),
       coalesce(t.table_name, y.table_name), y.column_id,
       coalesce(duckicelake_column_name(y.table_id, y.column_id), y.column_name), y.mask, y.condition,
       (SELECT jsonb_object_agg(n.key, coalesce(duckicelake_column_name(y.table_id, n.value::bigint), n.key))
        FROM jsonb_each_text(y.condition_columns) n),
       y.created_by, y.created_at,
       ARRAY(SELECT p.name FROM {governance}duckicelake_policy_principal o
             JOIN {governance}duckicelake_principal p USING (principal_id)
             WHERE o.policy_id = y.policy_id AND NOT o.is_exempt ORDER BY p.name),
       ARRAY(SELECT p.name FROM {governance}duckicelake_policy_principal o
             JOIN {governance}duckicelake_principal p USING (principal_id)
             WHERE o.policy_id = y.policy_id AND o.is_exempt ORDER BY p.name)
FROM {governance}duckicelake_policy y
LEFT JOIN ducklake_table t ON t.table_id = y.table_id AND t.end_snapshot IS NULL
LEFT JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE y.warehouse_id = %(warehouse_id)s AND (%(policy_id)s::uuid IS NULL OR y.policy_id = %(policy_id)s)
  AND (%(table_id)s::bigint IS NULL OR y.table_id = %(table_id)s OR EXISTS (
      SELECT FROM {governance}duckicelake_policy_tag g
      WHERE (g.warehouse_id, g.tag, g.table_id) = (y.warehouse_id, y.tag, %(table_id)s)))
  AND (%(after_name)s::text IS NULL
       OR (y.name COLLATE "C", y.policy_id) > (%(after_name)s::text, %(after_id)s::uuid))
ORDER BY y.name COLLATE "C", y.policy_id
LIMIT %(limit)s::bigint;

-- insert: a policy; none if the table has one of this name
INSERT INTO {governance}duckicelake_policy
    (policy_id, warehouse_id, name, tag, table_id, schema_name, table_name, column_id, column_name, mask, filter,
     condition, condition_columns, created_by)
VALUES (%(policy_id)s, %(warehouse_id)s, %(name)s, %(tag)s, %(table_id)s, %(schema_name)s, %(table_name)s, %(column_id)s,
        %(column_name)s, %(mask)s, %(filter)s, %(condition)s, %(condition_columns)s, %(by)s)
ON CONFLICT DO NOTHING RETURNING policy_id;

-- add_principals: whom a policy is for, or whom it is not for; returns the names that there are
WITH named AS (SELECT principal_id, name FROM {governance}duckicelake_principal WHERE name = ANY(%(names)s)),
added AS (
    INSERT INTO {governance}duckicelake_policy_principal (policy_id, principal_id, is_exempt)
    SELECT %(policy_id)s, principal_id, %(is_exempt)s FROM named
)
SELECT name FROM named;

-- delete: a policy
DELETE FROM {governance}duckicelake_policy WHERE warehouse_id = %(warehouse_id)s AND policy_id = %(policy_id)s
RETURNING policy_id;

-- tag: give a column a tag
INSERT INTO {governance}duckicelake_policy_tag
    (warehouse_id, tag, table_id, schema_name, table_name, column_id, column_name)
VALUES (%(warehouse_id)s, %(tag)s, %(table_id)s, %(schema_name)s, %(table_name)s, %(column_id)s, %(column_name)s)
ON CONFLICT DO NOTHING RETURNING tag;

-- untag: take a tag from a column
DELETE FROM {governance}duckicelake_policy_tag
WHERE warehouse_id = %(warehouse_id)s AND tag = %(tag)s AND table_id = %(table_id)s AND column_id = %(column_id)s
RETURNING tag;

-- tags: the tagged columns of a warehouse, of one table or all, with today's names
SELECT g.tag, g.table_id, g.column_id, t.table_id IS NOT NULL, coalesce(s.schema_name, g.schema_name),
       coalesce(t.table_name, g.table_name), coalesce(duckicelake_column_name(g.table_id, g.column_id), g.column_name)
FROM {governance}duckicelake_policy_tag g
LEFT JOIN ducklake_table t ON t.table_id = g.table_id AND t.end_snapshot IS NULL
LEFT JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE g.warehouse_id = %(warehouse_id)s AND (%(table_id)s::bigint IS NULL OR g.table_id = %(table_id)s)
  AND (%(after_tag)s::text IS NULL OR (g.tag COLLATE "C", g.table_id, g.column_id)
       > (%(after_tag)s::text, %(after_table)s::bigint, %(after_column)s::bigint))
ORDER BY g.tag COLLATE "C", g.table_id, g.column_id
LIMIT %(limit)s::bigint;

-- copy: give a table the policies of another one, and its columns' tags; its columns have the same ids
WITH copied AS (
    INSERT INTO {governance}duckicelake_policy
        (policy_id, warehouse_id, name, table_id, schema_name, table_name, column_id, column_name, mask, filter,
         condition, condition_columns, created_by)
    SELECT gen_random_uuid(), warehouse_id, name, %(to_id)s, %(schema_name)s, %(table_name)s, column_id, column_name, mask,
           filter, condition, condition_columns, created_by
    FROM {governance}duckicelake_policy WHERE warehouse_id = %(warehouse_id)s AND table_id = %(from_id)s
    RETURNING policy_id, name
),
whom AS (
    INSERT INTO {governance}duckicelake_policy_principal (policy_id, principal_id, is_exempt)
    SELECT c.policy_id, o.principal_id, o.is_exempt FROM copied c
    JOIN {governance}duckicelake_policy y
      ON y.warehouse_id = %(warehouse_id)s AND y.table_id = %(from_id)s AND y.name = c.name
    JOIN {governance}duckicelake_policy_principal o ON o.policy_id = y.policy_id
)
INSERT INTO {governance}duckicelake_policy_tag
    (warehouse_id, tag, table_id, schema_name, table_name, column_id, column_name)
SELECT warehouse_id, tag, %(to_id)s, %(schema_name)s, %(table_name)s, column_id, column_name
FROM {governance}duckicelake_policy_tag WHERE warehouse_id = %(warehouse_id)s AND table_id = %(from_id)s;
