-- next_place: the first in byte order, but not before this, of the folders of a table's files and metadata
SELECT path FROM (
    (SELECT duckicelake_folder(path) COLLATE "C" AS path FROM duckicelake_file
     WHERE table_id = %(table_id)s AND duckicelake_folder(path) COLLATE "C" >= %(least)s
     ORDER BY duckicelake_folder(path) COLLATE "C" LIMIT 1)
    UNION ALL
    (SELECT duckicelake_folder(path) COLLATE "C" FROM duckicelake_artifact
     WHERE table_id = %(table_id)s AND duckicelake_folder(path) COLLATE "C" >= %(least)s
     ORDER BY duckicelake_folder(path) COLLATE "C" LIMIT 1)
) found
ORDER BY path LIMIT 1;

-- sharers: the last schemas and names of other tables whose own files DuckLake keeps or kept in the same folder
SELECT DISTINCT (
    SELECT ARRAY[n.schema_name, l.table_name] FROM ducklake_table l JOIN duckicelake_schemas() n USING (schema_id)
    WHERE l.table_id = t.table_id ORDER BY l.begin_snapshot DESC, n.begin_snapshot DESC LIMIT 1)
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id), ducklake_metadata m
WHERE m.key = 'data_path' AND m.scope IS NULL AND t.table_id <> %(table_id)s
  AND CASE WHEN NOT t.path_is_relative THEN t.path = %(folder)s
           WHEN NOT s.is_nested THEN s.folder || t.path = %(folder)s
           ELSE %(folder)s = ANY (ARRAY(SELECT m.value || p || t.path FROM unnest(s.possible_paths) p)) END;
