-- As those of data files, the indexes of manifests, lists and metadata by path hold a number for each and every folder once;
-- and what lies below a place is found by the folders that it lies in, not by the paths of all files.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Where a file lies: the canonical folder with a slash at its end, as much of it as an index holds.
CREATE FUNCTION duckicelake_place(path text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN left(duckicelake_canonical_path(rtrim(duckicelake_folder(path), '/')) || '/', 500);

CREATE INDEX duckicelake_file_places ON duckicelake_file ((duckicelake_place(path)) COLLATE "C");
CREATE INDEX duckicelake_artifact_places ON duckicelake_artifact ((duckicelake_place(path)) COLLATE "C");
CREATE INDEX duckicelake_data_file_places ON ducklake_data_file ((duckicelake_place(path)) COLLATE "C")
    WHERE NOT path_is_relative;
DROP INDEX duckicelake_file_place;
DROP INDEX duckicelake_artifact_place;
DROP INDEX duckicelake_data_file_place;

CREATE INDEX duckicelake_artifact_by_hash ON duckicelake_artifact (duckicelake_name_hash(path));
CREATE INDEX duckicelake_artifact_folders ON duckicelake_artifact (table_id, (duckicelake_folder(path)) COLLATE "C");
DROP INDEX duckicelake_artifact_by_name;
DROP INDEX duckicelake_artifact_in_order;

-- Whether any row still names the file at a canonical path. A file whose table is gone counts as named.
CREATE OR REPLACE FUNCTION duckicelake_is_named(resolved text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH candidate AS MATERIALIZED (
        SELECT table_id, path, path_is_relative FROM ducklake_data_file
        WHERE duckicelake_file_name(path) = duckicelake_file_name(resolved)
        UNION ALL
        SELECT table_id, path, path_is_relative FROM ducklake_delete_file
        WHERE duckicelake_file_name(path) = duckicelake_file_name(resolved)
    )
    SELECT EXISTS (SELECT FROM duckicelake_file_ref WHERE path = resolved)
        OR EXISTS (
            SELECT FROM duckicelake_file f
            WHERE duckicelake_name_hash(f.path) = duckicelake_name_hash(resolved)
              AND duckicelake_canonical_path(f.path) = resolved
              AND NOT f.is_released AND duckicelake_keeps_files(f.table_id)
        )
        OR EXISTS (
            SELECT FROM duckicelake_artifact a
            WHERE duckicelake_name_hash(a.path) = duckicelake_name_hash(resolved)
              AND duckicelake_canonical_path(a.path) = resolved
              AND duckicelake_keeps_files(a.table_id)
        )
        OR EXISTS (
            SELECT FROM candidate f
            WHERE NOT f.path_is_relative AND duckicelake_canonical_path(f.path) = resolved
        )
        OR EXISTS (
            SELECT FROM candidate f
            LEFT JOIN (ducklake_table t JOIN ducklake_schema s USING (schema_id)) USING (table_id)
            WHERE f.path_is_relative
              AND (t.path IS NULL OR resolved = CASE
                  WHEN NOT t.path_is_relative THEN duckicelake_canonical_path(t.path || f.path)
                  ELSE duckicelake_resolve(s.path || t.path || f.path, s.path_is_relative) END)
        )
$$;
