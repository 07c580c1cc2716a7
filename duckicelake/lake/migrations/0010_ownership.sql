-- Whose a place is: which tables and views live at a location, above or below it; and what no cleanup may touch.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The one spelling of a location that comparisons use; equals duckicelake.storage.policy.canonical. Keys are literal.
CREATE OR REPLACE FUNCTION duckicelake_canonical_path(location text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    scheme    text   := lower(substring(location FROM '^([A-Za-z][A-Za-z0-9+.-]*):'));
    rest      text   := regexp_replace(location, '^[A-Za-z][A-Za-z0-9+.-]*:(//)?', '');
    segments  text[] := '{}';
    segment   text;
BEGIN
    IF scheme IS NULL AND rest NOT LIKE '/%' THEN
        RETURN location;
    ELSIF scheme IS NOT NULL AND scheme <> 'file' THEN
        RETURN CASE WHEN scheme IN ('s3a', 's3n') THEN 's3' ELSE scheme END || '://' || rtrim(rest, '/');
    END IF;
    FOREACH segment IN ARRAY string_to_array(regexp_replace(rest, '^localhost/', '/'), '/') LOOP
        IF segment = '..' THEN
            segments := segments[:cardinality(segments) - 1];
        ELSIF segment NOT IN ('', '.') THEN
            segments := segments || segment;
        END IF;
    END LOOP;
    RETURN 'file:///' || array_to_string(segments, '/');
END $$;

-- What lives at a location, above or below it, by the beginnings of locations: an index's entry holds 2,704 bytes at most.
CREATE INDEX duckicelake_table_place ON duckicelake_table ((left(duckicelake_canonical_path(location), 500)) COLLATE "C");
CREATE INDEX duckicelake_view_place ON duckicelake_view
    ((left(duckicelake_canonical_path(metadata ->> 'location'), 500)) COLLATE "C");
CREATE INDEX duckicelake_file_place ON duckicelake_file ((left(duckicelake_canonical_path(path), 500)) COLLATE "C");
CREATE INDEX duckicelake_artifact_place ON duckicelake_artifact
    ((left(duckicelake_canonical_path(path), 500)) COLLATE "C");
CREATE INDEX duckicelake_data_file_place ON ducklake_data_file ((left(duckicelake_canonical_path(path), 500)) COLLATE "C")
    WHERE NOT path_is_relative;

-- The prefixes below which the server and DuckLake keep files, canonical; none before a server of this version started.
CREATE TABLE duckicelake_zone (prefix text PRIMARY KEY);

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
      AND duckicelake_file_name(f.path) = duckicelake_file_name(resolved)
      AND duckicelake_canonical_path(f.path) = resolved AND NOT f.is_released
    LIMIT 1
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
