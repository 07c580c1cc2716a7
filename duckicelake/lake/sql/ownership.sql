-- forget_zones: the prefixes of before
DELETE FROM duckicelake_zone WHERE prefix <> ALL(%(prefixes)s::text[]);

-- record_zones: the prefixes below which the lake keeps its files
INSERT INTO duckicelake_zone SELECT DISTINCT * FROM unnest(%(prefixes)s::text[]) ON CONFLICT DO NOTHING;

-- zones: the prefixes below which the lake keeps its files
SELECT prefix FROM duckicelake_zone;

-- places: (location, schema and name) of tables and views that live at one of the prefixes or below one of the folders. Indexes hold
-- the beginnings of locations: what they find is looked at again.
WITH found AS (
    SELECT location, 't' AS kind, table_id AS id FROM duckicelake_table
    WHERE left(duckicelake_canonical_path(location), 500) COLLATE "C"
          = ANY(ARRAY(SELECT left(p, 500) FROM unnest(%(prefixes)s::text[]) p))
      AND duckicelake_canonical_path(location) = ANY(%(prefixes)s::text[])
    UNION
    SELECT t.location, 't', t.table_id FROM unnest(%(folders)s::text[]) AS f (folder)
    JOIN duckicelake_table t ON left(duckicelake_canonical_path(t.location), 500) COLLATE "C"
            BETWEEN left(f.folder || '/', 500) AND left(f.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(t.location), f.folder || '/')
    UNION
    SELECT metadata ->> 'location', 'v', view_id FROM duckicelake_view
    WHERE left(duckicelake_canonical_path(metadata ->> 'location'), 500) COLLATE "C"
          = ANY(ARRAY(SELECT left(p, 500) FROM unnest(%(prefixes)s::text[]) p))
      AND duckicelake_canonical_path(metadata ->> 'location') = ANY(%(prefixes)s::text[])
    UNION
    SELECT v.metadata ->> 'location', 'v', v.view_id FROM unnest(%(folders)s::text[]) AS f (folder)
    JOIN duckicelake_view v ON left(duckicelake_canonical_path(v.metadata ->> 'location'), 500) COLLATE "C"
            BETWEEN left(f.folder || '/', 500) AND left(f.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(v.metadata ->> 'location'), f.folder || '/')
)
SELECT duckicelake_canonical_path(location), CASE kind WHEN 't' THEN (
           SELECT ARRAY[s.schema_name, l.table_name] FROM ducklake_table l JOIN duckicelake_schemas() s USING (schema_id)
           WHERE l.table_id = f.id ORDER BY l.begin_snapshot DESC, s.begin_snapshot DESC LIMIT 1)
       ELSE (
           SELECT ARRAY[s.schema_name, l.view_name] FROM ducklake_view l JOIN duckicelake_schemas() s USING (schema_id)
           WHERE l.view_id = f.id ORDER BY l.begin_snapshot DESC, s.begin_snapshot DESC LIMIT 1) END
FROM found f
WHERE NOT (f.kind = 't' AND f.id = coalesce(%(table_id)s::bigint, -1));

-- data_path: the canonical folder of DuckLake's own files
SELECT duckicelake_canonical_path(value) FROM ducklake_metadata WHERE key = 'data_path' AND scope IS NULL;

-- folders: (folder, schema and name) of the tables whose own files DuckLake keeps in one of the folders
WITH folder AS MATERIALIZED (
    SELECT prefix, CASE WHEN starts_with(prefix, %(data_path)s || '/')
                        THEN substr(prefix, length(%(data_path)s) + 2) || '/' END AS relative
    FROM unnest(%(prefixes)s::text[]) AS p (prefix)
)
SELECT f.prefix, ARRAY[s.schema_name, t.table_name]
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
JOIN folder f ON s.path || t.path = f.relative AND t.path_is_relative AND s.path_is_relative
UNION
SELECT f.prefix, ARRAY[s.schema_name, t.table_name]
FROM duckicelake_schemas() s JOIN ducklake_table t USING (schema_id), unnest(s.possible_paths) p
JOIN folder f ON true
WHERE s.is_nested AND t.path_is_relative AND p || t.path = f.relative
UNION
SELECT f.prefix, ARRAY[s.schema_name, t.table_name]
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
JOIN folder f ON NOT t.path_is_relative AND rtrim(t.path, '/') = ANY(ARRAY[f.prefix, substr(f.prefix, 8)]);

-- files: (file, schema and name) of files that a table has or had
WITH wanted AS MATERIALIZED (SELECT DISTINCT duckicelake_canonical_path(p) AS path FROM unnest(%(paths)s::text[]) p),
owned AS (
    SELECT w.path, f.table_id FROM wanted w
    JOIN duckicelake_file f ON duckicelake_name_hash(f.path) = duckicelake_name_hash(w.path)
        AND duckicelake_canonical_path(f.path) = w.path
    UNION
    SELECT w.path, a.table_id FROM wanted w
    JOIN duckicelake_artifact a ON duckicelake_name_hash(a.path) = duckicelake_name_hash(w.path)
        AND duckicelake_canonical_path(a.path) = w.path
    UNION
    SELECT w.path, f.table_id FROM wanted w
    JOIN ducklake_data_file f ON duckicelake_file_name(f.path) = duckicelake_file_name(w.path)
        AND NOT f.path_is_relative AND duckicelake_canonical_path(f.path) = w.path
)
SELECT path, (
    SELECT ARRAY[s.schema_name, l.table_name] FROM ducklake_table l JOIN duckicelake_schemas() s USING (schema_id)
    WHERE l.table_id = o.table_id ORDER BY l.begin_snapshot DESC, s.begin_snapshot DESC LIMIT 1)
FROM owned o
WHERE o.table_id <> coalesce(%(table_id)s::bigint, -1);

-- files_below: the schemas and names of other tables that have or had files below a folder; 0 is what comes after /
WITH f AS (SELECT %(folder)s::text AS folder),
owned AS (
    SELECT o.table_id FROM f JOIN duckicelake_file o
        ON duckicelake_place(o.path) COLLATE "C"
            BETWEEN left(f.folder || '/', 500) AND left(f.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(o.path), f.folder || '/')
    UNION
    SELECT o.table_id FROM f JOIN duckicelake_artifact o
        ON duckicelake_place(o.path) COLLATE "C"
            BETWEEN left(f.folder || '/', 500) AND left(f.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(o.path), f.folder || '/')
    UNION
    SELECT o.table_id FROM f JOIN ducklake_data_file o
        ON NOT o.path_is_relative
        AND duckicelake_place(o.path) COLLATE "C"
            BETWEEN left(f.folder || '/', 500) AND left(f.folder || '0', 500)
        AND starts_with(duckicelake_canonical_path(o.path), f.folder || '/')
)
SELECT DISTINCT (
    SELECT ARRAY[s.schema_name, l.table_name] FROM ducklake_table l JOIN duckicelake_schemas() s USING (schema_id)
    WHERE l.table_id = o.table_id ORDER BY l.begin_snapshot DESC, s.begin_snapshot DESC LIMIT 1)
FROM owned o
WHERE o.table_id <> coalesce(%(table_id)s::bigint, -1);

-- name_of: (schema, name, whether it is there) of a table, as it was last
SELECT s.schema_name, l.table_name, l.end_snapshot IS NULL
FROM ducklake_table l JOIN duckicelake_schemas() s USING (schema_id)
WHERE l.table_id = %(table_id)s ORDER BY l.begin_snapshot DESC, s.begin_snapshot DESC LIMIT 1;
