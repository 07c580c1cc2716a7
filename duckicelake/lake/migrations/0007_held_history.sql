-- Snapshots of before a merge or flush of DuckDB's list files that DuckLake no longer has; they stay for a while only.
ALTER TABLE duckicelake_snapshot ADD COLUMN held_until timestamptz;
CREATE INDEX duckicelake_snapshot_held ON duckicelake_snapshot (table_id, held_until) WHERE held_until IS NOT NULL;

-- A file that no listed snapshot shows any more, though manifests still name it as one that a snapshot removed.
ALTER TABLE duckicelake_file ADD COLUMN is_released boolean NOT NULL DEFAULT false;

-- What is scheduled may be wanted again.
CREATE INDEX duckicelake_scheduled_file_name ON ducklake_files_scheduled_for_deletion (duckicelake_file_name(path));

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

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
              AND NOT f.is_released AND duckicelake_keeps_files(f.table_id)
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

-- DuckLake expires by row and then deletes by path; a path may have other rows (a rollback, a branch, a clone).
CREATE OR REPLACE FUNCTION duckicelake_keep_named_file() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    resolved  text := duckicelake_resolve(NEW.path, NEW.path_is_relative);
    data_path text := (SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL);
BEGIN
    IF NOT duckicelake_is_named(resolved) THEN
        RETURN NEW;
    END IF;
    INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path, path_is_relative,
        format, delete_count, file_size_bytes)
    SELECT NEW.data_file_id, f.table_id, duckicelake_never(), NEW.data_file_id,
           CASE WHEN NEW.path_is_relative THEN data_path ELSE '' END || NEW.path, false, 'parquet', 0, 0
    FROM duckicelake_file f JOIN ducklake_table t USING (table_id)
    WHERE starts_with(resolved, duckicelake_canonical_path(data_path) || '/') AND t.end_snapshot IS NULL
      AND duckicelake_file_name(f.path) = duckicelake_file_name(resolved)
      AND duckicelake_canonical_path(f.path) = resolved AND NOT f.is_released
    LIMIT 1
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
