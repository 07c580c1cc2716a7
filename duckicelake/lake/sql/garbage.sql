-- unnamed: those of the file names that no row of DuckLake's or ours has, in whatever folder
SELECT n.name
FROM unnest(%(names)s::text[]) AS n (name)
WHERE NOT EXISTS (SELECT FROM ducklake_data_file WHERE duckicelake_file_name(path) = n.name)
  AND NOT EXISTS (SELECT FROM ducklake_delete_file WHERE duckicelake_file_name(path) = n.name)
  AND NOT EXISTS (SELECT FROM ducklake_files_scheduled_for_deletion WHERE duckicelake_file_name(path) = n.name)
  AND NOT EXISTS (SELECT FROM duckicelake_file
                  WHERE duckicelake_name_hash(path) = duckicelake_name_hash(n.name) AND duckicelake_file_name(path) = n.name)
  AND NOT EXISTS (SELECT FROM duckicelake_artifact
                  WHERE duckicelake_name_hash(path) = duckicelake_name_hash(n.name) AND duckicelake_file_name(path) = n.name);

-- named_in_metadata: names of the files that only metadata names: statistics, views' metadata, what else is to be kept
SELECT duckicelake_file_name(path) FROM duckicelake_file_ref
UNION SELECT duckicelake_file_name(metadata_location) FROM duckicelake_view
UNION SELECT duckicelake_file_name(each ->> 'statistics-path')
FROM duckicelake_table, json_array_elements(coalesce(metadata -> 'statistics', '[]')) each
UNION SELECT duckicelake_file_name(each ->> 'statistics-path')
FROM duckicelake_table, json_array_elements(coalesce(metadata -> 'partition-statistics', '[]')) each;

-- live_tables: the live tables that Iceberg clients have seen, with their canonical locations
SELECT DISTINCT duckicelake_canonical_path(d.location), d.table_id
FROM duckicelake_table d JOIN ducklake_table t USING (table_id)
WHERE t.end_snapshot IS NULL;

-- foreign_places: where others may keep files of tables: dropped or given up, guarded, registered from elsewhere, or
-- Delta's
WITH foreign_table AS MATERIALIZED (
    SELECT table_id, location, metadata FROM duckicelake_table t
    WHERE NOT EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)
       OR (lower(metadata -> 'properties' ->> 'gc.enabled') = 'false'
           AND NOT EXISTS (SELECT FROM duckicelake_guard g WHERE g.table_id = t.table_id))
       OR EXISTS (SELECT FROM duckicelake_artifact a
                  WHERE a.table_id = t.table_id AND a.kind = 'metadata' AND a.object_id < 0)
)
SELECT duckicelake_canonical_path(location) FROM foreign_table
UNION SELECT DISTINCT duckicelake_canonical_path(regexp_replace(a.path, '/metadata/[^/]*$', ''))
FROM foreign_table JOIN duckicelake_artifact a USING (table_id)
UNION SELECT duckicelake_canonical_path(value)
FROM foreign_table, json_each_text(coalesce(metadata -> 'properties', '{}'))
WHERE key LIKE 'write.%path' AND value <> ''
UNION SELECT duckicelake_canonical_path(root) FROM duckicelake_delta_source;

-- unreleased: live tables with manifest lists of snapshots that aren't listed any more
SELECT DISTINCT a.table_id
FROM duckicelake_artifact a JOIN ducklake_table t ON t.table_id = a.table_id AND t.end_snapshot IS NULL
WHERE a.kind = 'manifest-list' AND NOT EXISTS (
    SELECT FROM duckicelake_snapshot s WHERE s.table_id = a.table_id AND s.snapshot_id = a.object_id);
