-- lake_files: DuckLake's rows of data files: where it finds each, and what it calls the columns there,
-- and the row id of its first row, if it doesn't hold its row ids
SELECT d.data_file_id, CASE WHEN d.path_is_relative THEN %(prefix)s || d.path ELSE d.path END, d.file_size_bytes,
       d.mapping_id, d.row_id_start
FROM ducklake_data_file d
WHERE d.data_file_id = ANY(%(data_file_ids)s);

-- guard: from now on these tables say that they share files
INSERT INTO duckicelake_guard SELECT unnest(%(table_ids)s::bigint[]) ON CONFLICT DO NOTHING;

-- unguard: a table that shares no files any more
DELETE FROM duckicelake_guard WHERE table_id = %(table_id)s;

-- is_ours: whether the server said that the table's files may not be deleted
SELECT 1 FROM duckicelake_guard WHERE table_id = %(table_id)s;

-- guarded: the live tables of which it said so, by their names
SELECT g.table_id, s.schema_name, t.table_name
FROM duckicelake_guard g JOIN ducklake_table t USING (table_id) JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL
ORDER BY s.schema_name, t.table_name;

-- share_places: a clone's files may lie where those of its source may
INSERT INTO duckicelake_shared_place (table_id, prefix)
SELECT %(clone_id)s, prefix FROM duckicelake_shared_place WHERE table_id = %(source_id)s
UNION SELECT %(clone_id)s, duckicelake_canonical_path(location) || '/' FROM duckicelake_table
WHERE table_id = %(source_id)s
UNION SELECT %(clone_id)s, duckicelake_canonical_path(regexp_replace(path, '/metadata/[^/]*$', '')) || '/'
FROM duckicelake_artifact WHERE table_id = %(source_id)s AND object_id >= 0
ON CONFLICT DO NOTHING;

-- shared_places: where files lie that a table shares or shared
SELECT prefix FROM duckicelake_shared_place WHERE table_id = %(table_id)s;

-- shares: whether another table that is there, or keeps its files, names a file of this one or one in its location
WITH own AS MATERIALIZED (
    SELECT DISTINCT duckicelake_file_name(path) AS name, duckicelake_canonical_path(path) AS path
    FROM duckicelake_file WHERE table_id = %(table_id)s AND NOT is_released
), place AS MATERIALIZED (
    SELECT duckicelake_canonical_path(location) AS folder FROM duckicelake_table WHERE table_id = %(table_id)s
), below AS MATERIALIZED (  -- as a whole: who looks for one only may read all files instead of the index
    SELECT DISTINCT o.table_id FROM place p
    JOIN duckicelake_file o ON duckicelake_place(o.path) COLLATE "C"
            BETWEEN left(p.folder || '/', 500) AND left(p.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(o.path), p.folder || '/')
    WHERE NOT o.is_released AND o.table_id <> %(table_id)s
)
SELECT EXISTS (
    SELECT FROM own w
    JOIN duckicelake_file o ON duckicelake_name_hash(o.path) = duckicelake_name_hash(w.path)
        AND duckicelake_canonical_path(o.path) = w.path
    WHERE NOT o.is_released AND o.table_id <> %(table_id)s AND EXISTS (
        SELECT FROM duckicelake_table d
        WHERE d.table_id = o.table_id
          AND (d.outlives_drop OR EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = d.table_id)))
) OR EXISTS (
    SELECT FROM own w
    JOIN ducklake_data_file o ON duckicelake_file_name(o.path) = w.name AND NOT o.path_is_relative
        AND duckicelake_canonical_path(o.path) = w.path
    WHERE o.table_id <> %(table_id)s
) OR EXISTS (
    SELECT FROM below JOIN duckicelake_table d USING (table_id)
    WHERE d.outlives_drop OR EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = d.table_id)
) OR EXISTS (
    SELECT FROM place p
    JOIN ducklake_data_file o ON NOT o.path_is_relative AND duckicelake_place(o.path) COLLATE "C"
            BETWEEN left(p.folder || '/', 500) AND left(p.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(o.path), p.folder || '/')
    WHERE o.table_id <> %(table_id)s
);
