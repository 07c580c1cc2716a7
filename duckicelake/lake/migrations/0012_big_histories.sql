-- Of a long history only the end is read, and how many snapshots it has; expiry compares them with DuckLake's.
CREATE INDEX duckicelake_snapshot_in_order ON duckicelake_snapshot (table_id, ducklake_id);

-- Two functions that indexes of every file are made of, as before but in a fraction of the time: paths that are spelled
-- canonically are told by one look. Functions keep the search path of this moment: DuckDB and pg_restore have others.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The one spelling of a location that comparisons use; equals duckicelake.storage.policy.canonical.
CREATE OR REPLACE FUNCTION duckicelake_canonical_path(location text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    scheme    text;
    rest      text;
    segments  text[] := '{}';
    segment   text;
BEGIN
    IF starts_with(location, '/') AND location !~ '/\.{0,2}(/|$)' THEN
        RETURN 'file://' || location;
    ELSIF starts_with(location, 's3://') THEN
        RETURN 's3://' || rtrim(substr(location, 6), '/');
    END IF;
    scheme := lower(substring(location FROM '^([A-Za-z][A-Za-z0-9+.-]*):'));
    rest := regexp_replace(location, '^[A-Za-z][A-Za-z0-9+.-]*:(//)?', '');
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

-- Last segment of a path, by which files are found whichever way their folders are spelled.
CREATE OR REPLACE FUNCTION duckicelake_file_name(path text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN split_part(path, '/', -1);
