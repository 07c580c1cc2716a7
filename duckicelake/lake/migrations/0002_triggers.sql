-- What keeps DuckDB from harming Iceberg tables, and the indexes that DuckLake lacks.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The one spelling of a location that comparisons use; equals duckicelake.storage.policy.canonical.
CREATE FUNCTION duckicelake_canonical_path(location text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    scheme    text   := lower(substring(location FROM '^([A-Za-z][A-Za-z0-9+.-]*):'));
    rest      text   := regexp_replace(location, '^[A-Za-z][A-Za-z0-9+.-]*:(//)?', '');
    authority text   := '';
    segments  text[] := '{}';
    segment   text;
BEGIN
    IF scheme IS NULL AND rest NOT LIKE '/%' THEN
        RETURN location;
    ELSIF scheme IS NULL OR scheme = 'file' THEN
        scheme := 'file';
        rest := regexp_replace(rest, '^localhost/', '/');
    ELSE
        scheme := CASE WHEN scheme IN ('s3a', 's3n') THEN 's3' ELSE scheme END;
        authority := split_part(rest, '/', 1);
        rest := substr(rest, length(authority) + 1);
    END IF;
    FOREACH segment IN ARRAY string_to_array(rest, '/') LOOP
        IF segment = '..' THEN
            segments := segments[:cardinality(segments) - 1];
        ELSIF segment NOT IN ('', '.') THEN
            segments := segments || segment;
        END IF;
    END LOOP;
    IF cardinality(segments) = 0 AND authority <> '' THEN
        RETURN scheme || '://' || authority;
    END IF;
    RETURN scheme || '://' || authority || '/' || array_to_string(segments, '/');
END $$;

-- Last segment of a path, by which files are found whichever way their folders are spelled.
CREATE FUNCTION duckicelake_file_name(path text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN substring(path FROM '[^/]*$');

CREATE INDEX duckicelake_data_file_name ON ducklake_data_file (duckicelake_file_name(path));
CREATE INDEX duckicelake_file_by_name ON duckicelake_file (duckicelake_file_name(path));
CREATE INDEX duckicelake_delete_file_name ON ducklake_delete_file (duckicelake_file_name(path));

-- Canonical form of a path that is relative to DATA_PATH, or absolute.
CREATE FUNCTION duckicelake_resolve(path text, path_is_relative boolean) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT duckicelake_canonical_path(
        CASE WHEN path_is_relative
             THEN (SELECT value FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL)
             ELSE '' END || path
    )
$$;

-- Whether any row still names the file at a canonical path. A file whose table is gone counts as named.
CREATE FUNCTION duckicelake_is_named(resolved text) RETURNS boolean
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
            SELECT FROM duckicelake_file f JOIN duckicelake_table t USING (table_id)
            WHERE duckicelake_file_name(f.path) = duckicelake_file_name(resolved)
              AND duckicelake_canonical_path(f.path) = resolved
              AND (t.outlives_drop OR EXISTS (
                  SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL))
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
CREATE FUNCTION duckicelake_keep_named_file() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF duckicelake_is_named(duckicelake_resolve(NEW.path, NEW.path_is_relative)) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER duckicelake_keep_named_file BEFORE INSERT ON ducklake_files_scheduled_for_deletion
FOR EACH ROW EXECUTE FUNCTION duckicelake_keep_named_file();

-- Expiry makes no snapshot by which caches could notice it.
CREATE FUNCTION duckicelake_raise_epoch() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM gone) THEN
        UPDATE duckicelake_epoch SET epoch = epoch + 1;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_raise_epoch AFTER DELETE ON ducklake_snapshot
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_raise_epoch();

-- What changed in a table since a snapshot, without reading the files that didn't.
CREATE INDEX duckicelake_data_file_begin ON ducklake_data_file (table_id, begin_snapshot);
CREATE INDEX duckicelake_data_file_end ON ducklake_data_file (table_id, end_snapshot) WHERE end_snapshot IS NOT NULL;
CREATE INDEX duckicelake_delete_file_begin ON ducklake_delete_file (table_id, begin_snapshot);
CREATE INDEX duckicelake_delete_file_end ON ducklake_delete_file (table_id, end_snapshot)
    WHERE end_snapshot IS NOT NULL;

-- Everything else by its owner.
CREATE INDEX duckicelake_delete_file_target ON ducklake_delete_file (data_file_id);
CREATE INDEX duckicelake_file_column_stats ON ducklake_file_column_stats (data_file_id);
CREATE INDEX duckicelake_file_variant_stats ON ducklake_file_variant_stats (data_file_id);
CREATE INDEX duckicelake_file_partition_value ON ducklake_file_partition_value (data_file_id);
CREATE INDEX duckicelake_table_id ON ducklake_table (table_id);
CREATE INDEX duckicelake_table_name ON ducklake_table (schema_id, table_name);
CREATE INDEX duckicelake_view_name ON ducklake_view (schema_id, view_name);
CREATE INDEX duckicelake_column ON ducklake_column (table_id);
CREATE INDEX duckicelake_schema_versions ON ducklake_schema_versions (table_id);
CREATE INDEX duckicelake_table_stats ON ducklake_table_stats (table_id);
CREATE INDEX duckicelake_table_column_stats ON ducklake_table_column_stats (table_id);
CREATE INDEX duckicelake_partition_info ON ducklake_partition_info (table_id);
CREATE INDEX duckicelake_partition_column ON ducklake_partition_column (partition_id);
CREATE INDEX duckicelake_sort_info ON ducklake_sort_info (table_id);
CREATE INDEX duckicelake_sort_expression ON ducklake_sort_expression (sort_id);
CREATE INDEX duckicelake_inlined_data_tables ON ducklake_inlined_data_tables (table_id);
CREATE INDEX duckicelake_tag ON ducklake_tag (object_id);
CREATE INDEX duckicelake_column_tag ON ducklake_column_tag (table_id);
