-- search: live namespaces, tables and views after a key, whose name, comment, columns or columns' comments hold a text;
-- a key is the schema's full name, U+0001, and the object's own name, which is empty of a namespace
WITH schema AS MATERIALIZED (
    SELECT s.schema_id, s.schema_name, n.properties ->> 'comment' AS comment,
           (%(visible)s::text[] IS NULL OR EXISTS (
               SELECT FROM unnest(%(visible)s::text[]) AS v (namespace)
               WHERE duckicelake_is_within(s.schema_name, namespace))) AS is_visible
    FROM duckicelake_schemas() s LEFT JOIN duckicelake_namespace n USING (schema_id)
    WHERE s.end_snapshot IS NULL
      AND (%(namespace)s::text IS NULL OR duckicelake_is_within(s.schema_name, %(namespace)s))
),
comment AS MATERIALIZED (
    SELECT object_id, value FROM ducklake_tag WHERE key = 'comment' AND end_snapshot IS NULL AND value IS NOT NULL
),
columns AS MATERIALIZED (
    SELECT c.table_id AS object_id, array_agg(c.column_name ORDER BY c.column_order) AS names,
           bool_or(strpos(lower(c.column_name), lower(%(text)s)) > 0) AS by_name,
           bool_or(strpos(lower(coalesce(g.value, '')), lower(%(text)s)) > 0) AS by_comment
    FROM ducklake_column c
    LEFT JOIN ducklake_column_tag g
      ON g.table_id = c.table_id AND g.column_id = c.column_id AND g.key = 'comment' AND g.end_snapshot IS NULL
    WHERE c.end_snapshot IS NULL
      AND (strpos(lower(c.column_name), lower(%(text)s)) > 0 OR strpos(lower(g.value), lower(%(text)s)) > 0)
    GROUP BY c.table_id
),
object AS (
    SELECT 'namespace' AS kind, NULL::bigint AS object_id, schema_id, '' AS name FROM schema
    UNION ALL
    SELECT 'table', table_id, schema_id, table_name FROM ducklake_table WHERE end_snapshot IS NULL
    UNION ALL
    SELECT 'view', view_id, schema_id, view_name FROM ducklake_view WHERE end_snapshot IS NULL
),
described AS (
    SELECT o.kind, s.schema_name, o.name, coalesce(g.value, CASE o.kind WHEN 'namespace' THEN s.comment END) AS comment,
           coalesce(c.names, '{}') AS columns, coalesce(c.by_name, false) AS by_column,
           coalesce(c.by_comment, false) AS by_column_comment,
           strpos(lower(s.schema_name || '.' || o.name), lower(%(text)s)) > 0 AS by_name,
           (s.schema_name || U&'\0001' || o.name) COLLATE "C" AS key
    FROM object o
    JOIN schema s USING (schema_id)
    LEFT JOIN comment g USING (object_id)
    LEFT JOIN columns c USING (object_id)
    WHERE o.kind = 'namespace' OR s.is_visible OR o.object_id = ANY(%(visible_ids)s)
)
SELECT key, kind, schema_name, name, comment, columns, by_name,
       coalesce(strpos(lower(comment), lower(%(text)s)) > 0, false) AS by_comment, by_column, by_column_comment
FROM described
WHERE key > %(after)s
  AND (by_name OR by_column OR by_column_comment OR strpos(lower(comment), lower(%(text)s)) > 0)
ORDER BY key
LIMIT %(limit)s;
