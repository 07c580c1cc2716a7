-- known: of which tables of the lake it is known that these are names
SELECT n.namespace, n.name, d.schema_name, d.table_name
FROM duckicelake_lineage_name n JOIN duckicelake_lineage_dataset d ON d.id = n.dataset_id
WHERE n.key = ANY (%(keys)s::uuid[]) AND n.until IS NULL AND d.schema_name IS NOT NULL;

-- live: which of some names are names of tables or views of the lake, and where those lie that Iceberg clients know
SELECT s.schema_name, t.name, t.location
FROM (SELECT t.schema_id, t.table_name AS name, d.location
      FROM ducklake_table t LEFT JOIN duckicelake_table d USING (table_id) WHERE t.end_snapshot IS NULL
      UNION ALL
      SELECT v.schema_id, v.view_name, NULL FROM ducklake_view v WHERE v.end_snapshot IS NULL) AS t
JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE s.schema_name || '.' || t.name = ANY (%(names)s::text[]);
