-- Indexes of files by path take less to write: a file is found by a number made of its name, and a table's folders are
-- kept once each, not with every file.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Equal for paths of files of one name.
CREATE FUNCTION duckicelake_name_hash(path text) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN hashtext(split_part(path, '/', -1) COLLATE "C");

-- A path up to its last slash.
CREATE FUNCTION duckicelake_folder(path text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN left(path, length(path) - length(split_part(path, '/', -1)));

CREATE INDEX duckicelake_file_by_hash ON duckicelake_file (duckicelake_name_hash(path));
CREATE INDEX duckicelake_file_folders ON duckicelake_file (table_id, (duckicelake_folder(path)) COLLATE "C");
DROP INDEX duckicelake_file_by_name;
DROP INDEX duckicelake_file_in_order;

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

-- DuckLake expires by row and then deletes by path; a path may have other rows (a rollback, a branch, a clone). And clients
-- register files anywhere: what lies outside of the lake isn't the lake's to delete.
CREATE OR REPLACE FUNCTION duckicelake_keep_named_file() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    resolved  text := duckicelake_resolve(NEW.path, NEW.path_is_relative);
    data_path text := (SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL);
BEGIN
    IF NOT NEW.path_is_relative AND EXISTS (SELECT FROM duckicelake_zone)
        AND NOT starts_with(resolved, duckicelake_canonical_path(data_path) || '/')
        AND NOT EXISTS (SELECT FROM duckicelake_zone WHERE starts_with(resolved, prefix || '/')) THEN
        RETURN NULL;
    END IF;
    IF resolved LIKE 's3://%//%' THEN  -- some stores drop empty segments: another's file by another name
        RETURN NULL;
    END IF;
    IF NOT duckicelake_is_named(resolved) THEN
        RETURN NEW;
    END IF;
    INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path, path_is_relative,
        format, delete_count, file_size_bytes)
    SELECT NEW.data_file_id, f.table_id, duckicelake_never(), NEW.data_file_id,
           CASE WHEN NEW.path_is_relative THEN data_path ELSE '' END || NEW.path, false, 'parquet', 0, 0
    FROM duckicelake_file f JOIN ducklake_table t USING (table_id)
    WHERE starts_with(resolved, duckicelake_canonical_path(data_path) || '/') AND t.end_snapshot IS NULL
      AND duckicelake_name_hash(f.path) = duckicelake_name_hash(resolved)
      AND duckicelake_canonical_path(f.path) = resolved AND NOT f.is_released
    LIMIT 1
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- Before `duckicelake_keep_named_file`: triggers run by name. A shallow clone has files of another Delta table's folder.
CREATE OR REPLACE FUNCTION duckicelake_keep_delta_file() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    resolved text;
BEGIN
    IF NEW.path_is_relative OR NOT EXISTS (SELECT FROM duckicelake_delta_source) THEN
        RETURN NEW;
    END IF;
    resolved := duckicelake_canonical_path(NEW.path);
    IF EXISTS (
        SELECT FROM duckicelake_delta_source WHERE starts_with(resolved, duckicelake_canonical_path(root) || '/')
    ) OR EXISTS (
        SELECT FROM duckicelake_file f
        JOIN duckicelake_delta_source s ON s.table_id = f.table_id
        JOIN duckicelake_table t ON t.table_id = f.table_id
        WHERE duckicelake_name_hash(f.path) = duckicelake_name_hash(resolved)
          AND duckicelake_canonical_path(f.path) = resolved
          AND NOT starts_with(resolved, duckicelake_canonical_path(t.location) || '/')
          AND NOT starts_with(resolved, duckicelake_resolve('', true) || '/')
    ) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;
