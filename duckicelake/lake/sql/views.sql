-- names: live views of a schema after a key, but for those that no request can name (`iceberg/names`)
SELECT v.view_name
FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.schema_name = %(schema_name)s AND s.end_snapshot IS NULL AND v.end_snapshot IS NULL
  AND v.view_name COLLATE "C" > %(after)s
  AND v.view_name !~ '^(\.\.?|)$|[\u0001-\u001f\u007f]' AND octet_length(v.view_name) <= 2000
ORDER BY v.view_name COLLATE "C"
LIMIT %(most)s;

-- find: the live view of a name, with the time of the snapshot that made it so (the next one's if that has expired)
SELECT v.view_id, v.view_uuid::text, s.schema_name, v.view_name, (
           SELECT (extract(epoch FROM snapshot_time) * 1000)::bigint FROM ducklake_snapshot
           WHERE snapshot_id >= v.begin_snapshot ORDER BY snapshot_id LIMIT 1),
       ARRAY(SELECT ARRAY[a.key, a.value] FROM ducklake_tag a
             WHERE a.object_id = v.view_id AND a.key <> 'comment' AND a.value IS NOT NULL AND a.end_snapshot IS NULL
             ORDER BY a.key),
       coalesce(v.dialect, 'duckdb'), coalesce(v.sql, ''), coalesce(v.column_aliases, ''), g.value,
       duckicelake_view_column_comments(v.view_id)
FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id)
LEFT JOIN ducklake_tag g ON g.object_id = v.view_id AND g.key = 'comment' AND g.end_snapshot IS NULL
WHERE s.schema_name = %(schema_name)s AND s.end_snapshot IS NULL
  AND v.view_name = %(view_name)s AND v.end_snapshot IS NULL;

-- side_row: what Iceberg clients last got of a view, or of the one that DuckDB put it in the place of
WITH RECURSIVE line (view_id) AS (
    SELECT %(view_id)s::bigint
    UNION
    SELECT old.view_id
    FROM line
    JOIN ducklake_view new USING (view_id)
    JOIN ducklake_view old ON old.schema_id = new.schema_id AND old.view_name = new.view_name
     AND old.end_snapshot = new.begin_snapshot
)
SELECT view_id, version, metadata, metadata_location, dialect, sql, column_aliases, comment, column_comments
FROM duckicelake_view JOIN line USING (view_id)
ORDER BY view_id DESC
LIMIT 1;

-- insert_side_row: the first version; no row if another worker was faster
INSERT INTO duckicelake_view (view_id, version, metadata, metadata_location, dialect, sql, column_aliases, comment,
    column_comments)
VALUES (%(view_id)s, 0, %(metadata)s, %(metadata_location)s, %(dialect)s, %(sql)s, %(column_aliases)s, %(comment)s,
    %(column_comments)s)
ON CONFLICT DO NOTHING;

-- update_side_row: the next version, under the id that DuckLake has for the view now
UPDATE duckicelake_view
SET view_id = %(view_id)s, version = version + 1, metadata = %(metadata)s, metadata_location = %(metadata_location)s,
    dialect = %(dialect)s, sql = %(sql)s, column_aliases = %(column_aliases)s, comment = %(comment)s,
    column_comments = %(column_comments)s
WHERE view_id = %(base_id)s AND version = %(base_version)s;

-- delete_side_row: forget a view
DELETE FROM duckicelake_view WHERE view_id = %(view_id)s;

-- delete_expired: forget views that DuckDB dropped and expired
DELETE FROM duckicelake_view k WHERE NOT EXISTS (SELECT FROM ducklake_view v WHERE v.view_id = k.view_id);

-- insert: a view that exists from a snapshot on; DuckDB can't attach a lake in which the aliases of a view are null
INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, dialect, sql,
    column_aliases)
VALUES (%(view_id)s, %(view_uuid)s, %(at)s, NULL, %(schema_id)s, %(view_name)s, %(dialect)s, %(sql)s,
    %(column_aliases)s);

-- redefine: another definition under the same name
WITH old AS (
    UPDATE ducklake_view SET end_snapshot = %(at)s WHERE view_id = %(view_id)s AND end_snapshot IS NULL
    RETURNING view_uuid, schema_id, view_name
)
INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, dialect, sql,
    column_aliases)
SELECT %(view_id)s, view_uuid, %(at)s, NULL, schema_id, view_name, %(dialect)s, %(sql)s, %(column_aliases)s FROM old;

-- rename: the same definition under another name
WITH old AS (
    UPDATE ducklake_view SET end_snapshot = %(at)s WHERE view_id = %(view_id)s AND end_snapshot IS NULL
    RETURNING view_uuid, dialect, sql, column_aliases
)
INSERT INTO ducklake_view (view_id, view_uuid, begin_snapshot, end_snapshot, schema_id, view_name, dialect, sql,
    column_aliases)
SELECT %(view_id)s, view_uuid, %(at)s, NULL, %(schema_id)s, %(view_name)s, dialect, sql, column_aliases FROM old;

-- comment_columns: give the columns of a view these comments; those that it has then, which are none in a 1.0 lake
SELECT duckicelake_comment_view_columns(%(view_id)s, %(at)s, %(column_comments)s);

-- end_column_tags: the tags of a view's columns end with its row, and begin again if that has a successor
SELECT duckicelake_end_view_column_tags(%(view_id)s, %(at)s, %(goes_on)s);

-- drop: the view and its comment end here
WITH ended AS (
    UPDATE ducklake_view SET end_snapshot = %(at)s WHERE view_id = %(view_id)s AND end_snapshot IS NULL
)
UPDATE ducklake_tag SET end_snapshot = %(at)s WHERE object_id = %(view_id)s AND end_snapshot IS NULL;

-- end_comment: the comment that a new one replaces
UPDATE ducklake_tag SET end_snapshot = %(at)s
WHERE object_id = %(view_id)s AND key = 'comment' AND end_snapshot IS NULL;

-- insert_comment: a view's comment; null says, as DuckDB does, that it has none
INSERT INTO ducklake_tag (object_id, begin_snapshot, end_snapshot, key, value)
VALUES (%(view_id)s, %(at)s, NULL, 'comment', %(comment)s);

-- relation: the live table or view, by table id or null, that DuckDB means by a name, whatever its case
SELECT s.schema_name, r.name, r.table_id
FROM duckicelake_schemas() s
JOIN (
    SELECT schema_id, table_name AS name, table_id FROM ducklake_table WHERE end_snapshot IS NULL
    UNION ALL
    SELECT schema_id, view_name, NULL FROM ducklake_view WHERE end_snapshot IS NULL
) r USING (schema_id)
WHERE s.end_snapshot IS NULL AND lower(r.name) = lower(%(name)s)
  AND (lower(s.schema_name) = lower(%(schema_name)s)
       OR NOT s.is_nested AND lower(s.recorded_name) = lower(%(schema_name)s));
