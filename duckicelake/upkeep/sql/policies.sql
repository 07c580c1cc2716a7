-- layers: the policies of a live table, or of a namespace without the name of one, by who says them, the weakest first
WITH wanted AS (
    SELECT t.table_id, s.schema_id, s.schema_name
    FROM duckicelake_schemas() s
    LEFT JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.end_snapshot IS NULL AND t.table_name = %(table_name)s
    WHERE s.end_snapshot IS NULL AND s.schema_name = %(schema_name)s
      AND (t.table_id IS NOT NULL OR %(table_name)s::text IS NULL)
),
option AS (
    SELECT scope, scope_id, value, CASE key
               WHEN 'target_file_size' THEN 'write.target-file-size-bytes'
               WHEN 'auto_compact' THEN 'maintenance.compaction.enabled'
               WHEN 'rewrite_delete_threshold' THEN 'maintenance.compaction.delete-ratio'
               ELSE key END AS name
    FROM ducklake_metadata
    WHERE key IN ('target_file_size', 'auto_compact', 'rewrite_delete_threshold', 'expire_older_than', 'parquet_compression')
),
layer AS (
    SELECT 1 AS rank, 'lake' AS source, e.key AS name, e.value
    FROM wanted, duckicelake_upkeep u, json_each_text(u.policies) e
    UNION ALL
    SELECT 2, 'DuckLake option', o.name, o.value FROM wanted, option o WHERE o.scope IS NULL
    UNION ALL
    SELECT 3, 'DuckLake option of the schema', o.name, o.value
    FROM wanted w JOIN option o ON o.scope = 'schema' AND o.scope_id = w.schema_id
    UNION ALL
    SELECT 4, 'DuckLake option of the table', o.name, o.value
    FROM wanted w JOIN option o ON o.scope = 'table' AND o.scope_id = w.table_id
    UNION ALL
    SELECT 10 + cardinality(p.levels), 'namespace ' || p.schema_name, e.key, e.value
    FROM wanted w
    JOIN duckicelake_schemas() p ON p.end_snapshot IS NULL AND duckicelake_is_within(w.schema_name, p.schema_name)
    JOIN duckicelake_namespace n ON n.schema_id = p.schema_id
    CROSS JOIN json_each_text(n.properties) e
    UNION ALL
    SELECT 1000, 'table', e.key, e.value
    FROM wanted w JOIN duckicelake_table d ON d.table_id = w.table_id
    CROSS JOIN json_each_text(d.metadata -> 'properties') e
    UNION ALL
    SELECT 1001, 'followed Delta table', 'maintenance.enabled', 'false'
    FROM wanted w JOIN duckicelake_delta_source d ON d.table_id = w.table_id AND d.following
)
SELECT source, name, value FROM layer ORDER BY rank, name;

-- is_live: whether there is such a table, or such a namespace without the name of one
SELECT EXISTS (
    SELECT FROM duckicelake_schemas() s
    WHERE s.end_snapshot IS NULL AND s.schema_name = %(schema_name)s
      AND (%(table_name)s::text IS NULL OR EXISTS (
          SELECT FROM ducklake_table t
          WHERE t.schema_id = s.schema_id AND t.end_snapshot IS NULL AND t.table_name = %(table_name)s)));

-- nearest: of one policy, what the nearest says of live tables of these names: the table, its namespaces, the lake
WITH wanted AS (
    SELECT s.schema_id, s.schema_name, t.table_id, t.table_name
    FROM unnest(%(schemas)s::text[], %(tables)s::text[]) AS w (schema_name, table_name)
    JOIN duckicelake_schemas() s ON s.schema_name = w.schema_name AND s.end_snapshot IS NULL AND NOT s.is_nested
    JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = w.table_name AND t.end_snapshot IS NULL
),
inherited AS (
    SELECT DISTINCT ON (w.schema_id) w.schema_id, n.properties ->> %(policy)s AS value
    FROM (SELECT DISTINCT schema_id, schema_name FROM wanted) w
    JOIN duckicelake_schemas() p ON p.end_snapshot IS NULL AND duckicelake_is_within(w.schema_name, p.schema_name)
    JOIN duckicelake_namespace n ON n.schema_id = p.schema_id AND n.properties ->> %(policy)s IS NOT NULL
    ORDER BY w.schema_id, cardinality(p.levels) DESC
)
SELECT w.schema_name, w.table_name, w.table_id,
       coalesce(d.metadata -> 'properties' ->> %(policy)s, i.value, u.policies ->> %(policy)s)
FROM wanted w
CROSS JOIN duckicelake_upkeep u
LEFT JOIN duckicelake_table d USING (table_id)
LEFT JOIN inherited i USING (schema_id);
