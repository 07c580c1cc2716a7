-- Branches, rollbacks and registered tables: files may be shared and may come back under their old row ids.

UPDATE duckicelake_file f SET first_row_id = d.row_id_start
FROM ducklake_data_file d
WHERE d.data_file_id = f.ducklake_id AND f.content = 0 AND f.first_row_id IS NULL;

CREATE INDEX duckicelake_artifact_by_name ON duckicelake_artifact (duckicelake_file_name(path));

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Whether a table is live, or keeps its files though it was dropped.
CREATE FUNCTION duckicelake_keeps_files(id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT FROM duckicelake_table t
        WHERE t.table_id = id AND (t.outlives_drop OR EXISTS (
            SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)))
$$;

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
            WHERE duckicelake_file_name(f.path) = duckicelake_file_name(resolved)
              AND duckicelake_canonical_path(f.path) = resolved
              AND duckicelake_keeps_files(f.table_id)
        )
        OR EXISTS (
            SELECT FROM duckicelake_artifact a
            WHERE duckicelake_file_name(a.path) = duckicelake_file_name(resolved)
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
