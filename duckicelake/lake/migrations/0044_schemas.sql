-- DuckLake 1.1 has schemas within schemas: `ducklake_schema.schema_name` is then the last level alone. All queries read
-- schemas by the function `duckicelake_schemas`, which says their full names, levels and folders.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- A level as it stands in a full name: its dots, and a % that would begin such an escape, are escaped.
CREATE FUNCTION duckicelake_escape_level(level text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN replace(regexp_replace(level, '%(?=25|2E)', '%25', 'g'), '.', '%2E');

-- The levels of a full name.
CREATE FUNCTION duckicelake_parse_levels(name text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ARRAY(SELECT replace(replace(level, '%2E', '.'), '%25', '%')
             FROM unnest(string_to_array(name, '.')) WITH ORDINALITY AS l (level, place) ORDER BY place);

-- Whether a full name is that of a namespace, or of something below it. Levels have no dots of their own.
CREATE FUNCTION duckicelake_is_within(name text, namespace text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN name = namespace OR starts_with(name, namespace || '.');

-- Refuse a table by its full name. A function, so that a query says it of the rows alone that it returns.
CREATE FUNCTION duckicelake_refuse_nested(name text) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RAISE EXCEPTION 'Table % is in a schema that lies within another one', name USING ERRCODE = 'DINS1';
END $$;

-- Schemas of which DuckLake's row doesn't say the full name: nested ones, and those whose dots are escaped. Empty in
-- format 1.0. Computed when schemas change, as the recursion takes longer than a whole freshness check.
CREATE TABLE duckicelake_nested_schema (
    schema_id      bigint PRIMARY KEY,
    parent_id      bigint,  -- null of one at the top level
    name           text,    -- null where its parents aren't all there
    possible_paths text[]   -- relative to DATA_PATH: which one is right, the release doesn't say
);

-- Compute them. The name of a top-level schema may have dots, which separate levels, unless a nested schema has the same
-- path: then they are escaped. A schema that was dropped is called as at its end. Only what differs is written, so that
-- transactions that change other schemas don't wait for each other.
CREATE FUNCTION duckicelake_compute_nested() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    WITH RECURSIVE tree (schema_id, depth, root_name, root_end, below_root, parent_path) AS (
        SELECT schema_id, 0, schema_name::text, end_snapshot, '', path::text
        FROM ducklake_schema WHERE parent_schema_id IS NULL
        UNION ALL
        SELECT c.schema_id, t.depth + 1, t.root_name, t.root_end,
               t.below_root || '.' || duckicelake_escape_level(c.schema_name), t.parent_path || c.path
        FROM tree t JOIN ducklake_schema c ON c.parent_schema_id = t.schema_id
    ), nested AS (
        SELECT t.root_name || t.below_root AS name, s.begin_snapshot, s.end_snapshot
        FROM tree t JOIN ducklake_schema s USING (schema_id) WHERE t.depth > 0
    ), escaped AS (
        SELECT DISTINCT t.root_name, t.root_end, duckicelake_escape_level(t.root_name) AS name
        FROM tree t JOIN nested n ON n.name = t.root_name
        WHERE t.depth = 0 AND n.begin_snapshot < coalesce(t.root_end, duckicelake_never())
          AND (n.end_snapshot IS NULL OR n.end_snapshot >= t.root_end)
    ), computed AS (
        SELECT s.schema_id, s.parent_schema_id::bigint AS parent_id,
               coalesce(e.name, t.root_name) || t.below_root AS name,
               CASE WHEN s.parent_schema_id IS NOT NULL THEN ARRAY[s.path::text, t.parent_path] END AS possible_paths
        FROM ducklake_schema s LEFT JOIN tree t USING (schema_id)
        LEFT JOIN escaped e ON e.root_name = t.root_name AND e.root_end IS NOT DISTINCT FROM t.root_end
        WHERE s.parent_schema_id IS NOT NULL OR e.name IS NOT NULL
    ), gone AS (
        DELETE FROM duckicelake_nested_schema WHERE schema_id NOT IN (SELECT schema_id FROM computed)
    )
    INSERT INTO duckicelake_nested_schema AS known (schema_id, parent_id, name, possible_paths)
    SELECT schema_id, parent_id, name, possible_paths FROM computed
    ON CONFLICT (schema_id) DO UPDATE
    SET parent_id = excluded.parent_id, name = excluded.name, possible_paths = excluded.possible_paths
    WHERE (known.parent_id, known.name, known.possible_paths)
          IS DISTINCT FROM (excluded.parent_id, excluded.name, excluded.possible_paths);
END $$;

-- Define `duckicelake_schemas`, the schemas as Iceberg clients know them. The planner merges it with the query around it,
-- and as long as no schema is nested it costs nothing: a join with the table above made freshness checks 12 % slower. It is
-- no view, as replacing one waits for readers, and a view forbids that DuckLake changes columns. Its columns:
--   schema_name     the full name: the escaped levels joined by dots; DuckLake's own name but for the schemas above
--   recorded_name   what DuckLake calls the schema itself, and `changes_made` at least one at the top level
--   path, folder    where its files are, as DuckLake says it and as a whole; null of a nested schema, of which the
--                   release doesn't say whether its path begins at its parent's folder or at DATA_PATH
-- A nested schema whose parents aren't all there isn't in it.
CREATE FUNCTION duckicelake_define_schemas() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $define$
DECLARE
    body text := CASE WHEN EXISTS (SELECT FROM duckicelake_nested_schema) THEN $joined$
    SELECT s.schema_id, s.schema_uuid, s.begin_snapshot, s.end_snapshot, n.parent_id, n.parent_id IS NOT NULL,
           coalesce(n.name, s.schema_name), s.schema_name::text,
           duckicelake_parse_levels(coalesce(n.name, s.schema_name)),
           CASE WHEN n.parent_id IS NULL THEN s.path::text END, s.path_is_relative,
           CASE WHEN n.parent_id IS NULL THEN
               CASE WHEN s.path_is_relative
                    THEN (SELECT m.value FROM ducklake_metadata m WHERE m.key = 'data_path' AND m.scope IS NULL)
                    ELSE '' END || s.path END,
           coalesce(n.possible_paths, ARRAY[s.path::text])
    FROM ducklake_schema s LEFT JOIN duckicelake_nested_schema n USING (schema_id)
    WHERE n.schema_id IS NULL OR n.name IS NOT NULL
    $joined$ ELSE $plain$
    SELECT s.schema_id, s.schema_uuid, s.begin_snapshot, s.end_snapshot, NULL::bigint, false, s.schema_name::text,
           s.schema_name::text, duckicelake_parse_levels(s.schema_name), s.path::text, s.path_is_relative,
           CASE WHEN s.path_is_relative
                THEN (SELECT m.value FROM ducklake_metadata m WHERE m.key = 'data_path' AND m.scope IS NULL)
                ELSE '' END || s.path,
           ARRAY[s.path::text]
    FROM ducklake_schema s
    $plain$ END;
BEGIN
    IF body IS DISTINCT FROM (
        SELECT prosrc FROM pg_proc
        WHERE proname = 'duckicelake_schemas'
          AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
    ) THEN
        EXECUTE $head$
            CREATE OR REPLACE FUNCTION duckicelake_schemas() RETURNS TABLE (
                schema_id bigint, schema_uuid uuid, begin_snapshot bigint, end_snapshot bigint, parent_id bigint,
                is_nested boolean, schema_name text, recorded_name text, levels text[], path text,
                path_is_relative boolean, folder text, possible_paths text[])
            LANGUAGE sql STABLE AS $head$ || quote_literal(body);
    END IF;
END $define$;

-- DuckLake 1.0 has no nested schemas; a migration adds the column under a running server.
CREATE FUNCTION duckicelake_name_schemas() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'ducklake_schema'::regclass
               AND attname = 'parent_schema_id' AND NOT attisdropped) THEN
        PERFORM duckicelake_compute_nested();
        PERFORM duckicelake_define_schemas();
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_name_schemas AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON ducklake_schema
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_name_schemas();

SELECT duckicelake_define_schemas();
UPDATE ducklake_schema SET schema_id = schema_id WHERE false; -- the trigger, for a lake that has nested schemas already

-- Whether any row still names the file at a canonical path. A file whose table is gone counts as named, and so does one
-- whose folder isn't known.
CREATE OR REPLACE FUNCTION duckicelake_is_named(resolved text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
            LEFT JOIN (ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)) USING (table_id)
            WHERE f.path_is_relative
              AND (t.path IS NULL OR t.path_is_relative AND s.path IS NULL OR resolved = CASE
                  WHEN NOT t.path_is_relative THEN duckicelake_canonical_path(t.path || f.path)
                  ELSE duckicelake_resolve(s.path || t.path || f.path, s.path_is_relative) END)
        )
$$;

-- Why a live table must not be written, as clients read it; null if it may be. Our own transactions that bring the next
-- version say whose by a setting.
CREATE OR REPLACE FUNCTION duckicelake_read_only(id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT format('Table %s.%s follows the Delta table %s and can''t be written here: write to that table, or take this '
                  'one over with `duckicelake delta adopt %1$s.%2$s`', n.schema_name, t.table_name, s.root)
    FROM duckicelake_delta_source s
    JOIN ducklake_table t ON t.table_id = s.table_id AND t.end_snapshot IS NULL
    JOIN duckicelake_schemas() n ON n.schema_id = t.schema_id
    WHERE s.table_id = id AND s.following
      AND current_setting('duckicelake.delta_sync', true) IS DISTINCT FROM s.table_id::text
    LIMIT 1
$$;
