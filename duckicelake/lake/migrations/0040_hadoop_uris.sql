-- The function that indexes of every file are made of, as before; `file:/x` without detours, as new tables' locations
-- are spelled, is told by one look, too.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

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
    ELSIF starts_with(location, 'file:/') AND substr(location, 6) !~ '/\.{0,2}(/|$)' THEN
        RETURN 'file://' || substr(location, 6);
    ELSIF starts_with(location, 'file:///') AND substr(location, 8) !~ '/\.{0,2}(/|$)' THEN
        RETURN location;
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
