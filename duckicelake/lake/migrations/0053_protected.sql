-- What says `ducklake.protected=true` can't be dropped or replaced by another, by no client of either side.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Whether properties say so.
CREATE FUNCTION duckicelake_says_protected(properties json) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(lower(properties ->> 'ducklake.protected') = 'true', false);

-- What is protected of the tables, views and schemas that a snapshot dropped, as a text; null if nothing is.
CREATE FUNCTION duckicelake_find_protected(tables bigint[], views bigint[], schemas bigint[], at bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT min(found.called) FROM (
        SELECT 'Table ' || s.schema_name || '.' || t.table_name AS called
        FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id) JOIN duckicelake_table k USING (table_id)
        WHERE t.table_id = ANY (tables) AND t.end_snapshot = at
          AND duckicelake_says_protected(k.metadata -> 'properties')
          AND NOT EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)
        UNION ALL
        SELECT 'View ' || s.schema_name || '.' || v.view_name
        FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id) JOIN duckicelake_view k USING (view_id)
        WHERE v.view_id = ANY (views) AND v.end_snapshot = at
          AND duckicelake_says_protected(k.metadata -> 'properties')
          AND NOT EXISTS (SELECT FROM ducklake_view l WHERE l.view_id = v.view_id AND l.end_snapshot IS NULL)
        UNION ALL
        SELECT 'Namespace ' || s.schema_name
        FROM duckicelake_schemas() s JOIN duckicelake_namespace k USING (schema_id)
        WHERE s.schema_id = ANY (schemas) AND s.end_snapshot = at AND duckicelake_says_protected(k.properties)
    ) found
$$;

-- Lists of names may hold anything.
CREATE FUNCTION duckicelake_check_protected() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    protected text;
BEGIN
    SELECT duckicelake_find_protected(
               coalesce(array_agg(token[2]::bigint) FILTER (WHERE token[1] = 'table'), '{}'),
               coalesce(array_agg(token[2]::bigint) FILTER (WHERE token[1] = 'view'), '{}'),
               coalesce(array_agg(token[2]::bigint) FILTER (WHERE token[1] = 'schema'), '{}'), NEW.snapshot_id)
    INTO protected
    FROM regexp_matches(regexp_replace(NEW.changes_made, '"([^"]|"")*"', '', 'g'),
                        'dropped_(table|view|schema):(\d+)', 'g') AS token;
    IF protected IS NOT NULL THEN
        RAISE EXCEPTION '% is protected: set its property ducklake.protected to false before you drop or replace it',
            protected USING ERRCODE = 'DIPR1';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_protected AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made ~ 'dropped_(table|view|schema):') EXECUTE FUNCTION duckicelake_check_protected();
