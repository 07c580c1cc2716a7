-- DuckDB's delete_orphaned_files deletes every Parquet file under DATA_PATH that no row of DuckLake names. A file that
-- only Iceberg still lists, on a branch or in its history, is named by a delete file's row that no snapshot ever shows.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The snapshot at which such rows begin: it never comes.
CREATE FUNCTION duckicelake_never() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 4611686018427387904;

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
      AND duckicelake_canonical_path(f.path) = resolved
    LIMIT 1
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
