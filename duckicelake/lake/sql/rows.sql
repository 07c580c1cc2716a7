-- lake_version: the newest schema version, the options that say how many rows are inlined, and the format's version
SELECT (SELECT schema_version FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1),
       (SELECT max(snapshot_id) FROM ducklake_snapshot),
       (SELECT coalesce(json_agg(json_build_array(scope, scope_id, value) ORDER BY scope, scope_id), '[]')
        FROM ducklake_metadata WHERE key = 'data_inlining_row_limit'),
       (SELECT value FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL);

-- live_table: ids of a live table and its schema
SELECT CASE WHEN s.is_nested THEN duckicelake_refuse_nested(s.schema_name || '.' || t.table_name) ELSE t.table_id END,
       t.schema_id
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.schema_name = %(schema_name)s AND s.end_snapshot IS NULL
  AND t.table_name = %(table_name)s AND t.end_snapshot IS NULL;

-- newest_version: the newest schema version that has a name for the table
SELECT max(schema_version) FROM ducklake_schema_versions WHERE table_id = %(table_id)s;

-- registered: the table that takes a table's inlined rows
SELECT table_name FROM ducklake_inlined_data_tables
WHERE table_id = %(table_id)s ORDER BY schema_version DESC LIMIT 1;

-- columns_of: the columns of a table in Postgres, in order; none if it isn't there
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass(quote_ident(%(name)s)) AND attnum > 0 AND NOT attisdropped ORDER BY attnum;

-- states: what tables that get rows are now: statistics (as `table_column_stats` reads them), the table of inlined rows,
-- the options. Nobody waits for long
-- from here on: a DuckDB client that flushes has tables locked until its commit, which waits for this transaction
SELECT t.table_id,
       (SELECT json_agg(json_build_array(s.record_count, s.next_row_id, s.file_size_bytes))
        FROM ducklake_table_stats s WHERE s.table_id = t.table_id),
       (SELECT json_agg(json_build_array(
            c.column_id,
            CASE WHEN c.min_value IS NULL AND c.max_value IS NULL AND c.contains_null THEN NULL ELSE c.contains_null END,
            c.contains_nan, c.min_value, c.max_value))
        FROM ducklake_table_column_stats c WHERE c.table_id = t.table_id),
       (SELECT i.table_name FROM ducklake_inlined_data_tables i
        WHERE i.table_id = t.table_id ORDER BY i.schema_version DESC LIMIT 1),
       (SELECT coalesce(json_agg(json_build_array(m.scope, m.scope_id, m.value) ORDER BY m.scope, m.scope_id), '[]')
        FROM ducklake_metadata m WHERE m.key = 'data_inlining_row_limit'),
       set_config('lock_timeout', '100ms', true)
FROM unnest(%(table_ids)s::bigint[]) AS t (table_id);

-- claim_next: take the snapshot id after one that we made, if that is still the newest, and if no other has changed what
-- goes without a snapshot: the options, or by hand the tables' sizes. Else it fails, as a snapshot_id can't be null, so
-- that no thread has to wait for an answer before COMMIT. For lock_timeout see `states`
INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
SELECT CASE WHEN newest.snapshot_id = %(snapshot_id)s AND newest.snapshot_time = %(time)s
             AND (SELECT coalesce(jsonb_agg(jsonb_build_array(m.scope, m.scope_id, m.value)
                                            ORDER BY m.scope, m.scope_id), '[]')
                  FROM ducklake_metadata m WHERE m.key = 'data_inlining_row_limit') = %(options)s::jsonb
             AND (SELECT count(*)
                  FROM json_to_recordset(%(tables)s::json)
                      AS known (table_id bigint, records bigint, row_ids bigint, bytes bigint)
                  JOIN ducklake_table_stats s USING (table_id)
                  WHERE (s.record_count, s.next_row_id, s.file_size_bytes) = (records, row_ids, bytes)) = %(count)s
            THEN newest.snapshot_id + 1 END,
       greatest(clock_timestamp(), newest.snapshot_time),
       newest.schema_version, newest.next_catalog_id, newest.next_file_id + %(file_ids)s
FROM (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) newest
RETURNING snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id,
          set_config('lock_timeout', '100ms', true);

-- count_rows: rows that tables have got, and columns whose statistics have become wider by them
WITH counted AS (
    UPDATE ducklake_table_stats s
    SET record_count = s.record_count + n.count, next_row_id = s.next_row_id + n.count,
        file_size_bytes = s.file_size_bytes + n.size
    FROM json_to_recordset(%(tables)s::json) AS n (table_id bigint, count bigint, size bigint)
    WHERE s.table_id = n.table_id
)
UPDATE ducklake_table_column_stats c
SET contains_null = n.contains_null, contains_nan = n.contains_nan, min_value = n.min_value, max_value = n.max_value
FROM json_to_recordset(%(columns)s::json) AS n (table_id bigint, column_id bigint, contains_null boolean,
    contains_nan boolean, min_value text, max_value text)
WHERE c.table_id = n.table_id AND c.column_id = n.column_id;

-- forget_columns: columns of which no statistics are known any more
DELETE FROM ducklake_table_column_stats c
USING unnest(%(table_ids)s::bigint[], %(column_ids)s::bigint[]) AS n (table_id, column_id)
WHERE c.table_id = n.table_id AND c.column_id = n.column_id;
