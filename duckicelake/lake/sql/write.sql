-- lock_table: the version and progress of a table, held until the end of the transaction
SELECT version, caught_up_to FROM duckicelake_table WHERE table_id = %(table_id)s FOR UPDATE;

-- lock_bases: the same of several tables; what DuckLake snapshots after one changed, if they are there and say so;
-- which of the tables got a name after it, at their creation or by a rename; and why those mustn't be written that
-- mustn't. Snapshots are looked up one by one: a plan for any number of them could read all that there are
WITH locked AS MATERIALIZED (
    SELECT table_id, version, caught_up_to FROM duckicelake_table
    WHERE table_id = ANY(%(table_ids)s) ORDER BY table_id FOR UPDATE
)
SELECT (SELECT coalesce(json_agg(json_build_array(table_id, version, caught_up_to)), '[]') FROM locked),
       (SELECT coalesce(json_agg(json_build_array(made.snapshot_id, made.changes_made)), '[]')
        FROM generate_series(%(after)s + 1, (SELECT max(snapshot_id) FROM ducklake_snapshot)) AS since (id),
        LATERAL (SELECT snapshot_id, changes_made
                 FROM ducklake_snapshot JOIN ducklake_snapshot_changes USING (snapshot_id)
                 WHERE snapshot_id = since.id LIMIT 1) AS made),
       (SELECT coalesce(json_agg(json_build_array(table_id, begin_snapshot)), '[]') FROM ducklake_table
        WHERE table_id = ANY(%(table_ids)s) AND begin_snapshot > %(after)s),
       (SELECT coalesce(json_agg(json_build_array(table_id, duckicelake_read_only(table_id))), '[]')
        FROM duckicelake_delta_source WHERE table_id = ANY(%(table_ids)s) AND following);

-- claim_after: the snapshot after one that we made, if that is still the newest, for a table that follows no other. Else it
-- fails, as a snapshot_id can't be null, so that no thread has to wait for an answer before COMMIT
INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
SELECT CASE WHEN newest.snapshot_id = %(snapshot_id)s AND newest.snapshot_time = %(time)s
             AND NOT EXISTS (SELECT FROM duckicelake_delta_source WHERE table_id = %(table_id)s AND following)
            THEN newest.snapshot_id + 1 END,
       greatest(clock_timestamp(), newest.snapshot_time),
       newest.schema_version + %(schema_changes)s,
       newest.next_catalog_id + %(catalog_ids)s,
       newest.next_file_id + %(file_ids)s
FROM (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) newest
RETURNING snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id;

-- insert_table: a new side-table row
INSERT INTO duckicelake_table (table_id, table_uuid, location, version, caught_up_to, epoch, ducklake_id,
    format_version, last_sequence_number, next_row_id, last_updated_ms, current_snapshot_id, metadata)
VALUES (%(table_id)s, %(table_uuid)s, %(location)s, 0, %(caught_up_to)s, %(epoch)s, %(ducklake_id)s, %(format_version)s,
    %(last_sequence_number)s, %(next_row_id)s, %(last_updated_ms)s, %(current_snapshot_id)s, %(metadata)s)
ON CONFLICT DO NOTHING;

-- update_table: the side-table row of the next version. It fails, as a version can't be null, if the table isn't what the
-- change was computed from
UPDATE duckicelake_table
SET location = %(location)s,
    version = CASE WHEN (version, caught_up_to) = (%(base_version)s, %(base_progress)s) THEN version + 1 END,
    caught_up_to = %(caught_up_to)s,
    ducklake_id = coalesce(%(ducklake_id)s, ducklake_id), format_version = %(format_version)s,
    last_sequence_number = %(last_sequence_number)s, next_row_id = %(next_row_id)s,
    last_updated_ms = %(last_updated_ms)s, current_snapshot_id = %(current_snapshot_id)s, metadata = %(metadata)s
WHERE table_id = %(table_id)s;

-- advance: no native change of this table up to here
UPDATE duckicelake_table SET caught_up_to = %(upto)s, epoch = %(epoch)s
WHERE table_id = %(table_id)s AND caught_up_to = %(after)s;

-- set_epoch: expiries up to here are folded in
UPDATE duckicelake_table SET epoch = %(epoch)s WHERE table_id = %(table_id)s;

-- insert_rows: files with every fact of their manifest entries, manifests with their entries, and snapshots
WITH files AS (
    INSERT INTO duckicelake_file (file_id, table_id, content, path, file_format, spec_id, partition, record_count,
        file_size_in_bytes, added_snapshot_id, sequence_number, file_sequence_number, first_row_id, metrics,
        ducklake_id)
    SELECT file_id, %(table_id)s, content, path, file_format, spec_id, (partition #>> '{}')::json, record_count,
           file_size_in_bytes, added_snapshot_id, sequence_number, file_sequence_number, first_row_id, metrics,
           ducklake_id
    FROM json_populate_recordset(NULL::duckicelake_file, %(files)s::json)
), manifests AS (
    INSERT INTO duckicelake_manifest (manifest_id, table_id, content, format_version, spec_id, schema_id,
        sequence_number, min_sequence_number, added_snapshot_id, added, existing, deleted, is_laid_out)
    SELECT manifest_id, %(table_id)s, content, format_version, spec_id, schema_id, sequence_number,
           min_sequence_number, added_snapshot_id, added, existing, deleted, is_laid_out
    FROM json_populate_recordset(NULL::duckicelake_manifest, %(manifests)s::json)
)
INSERT INTO duckicelake_snapshot (table_id, snapshot_id, proposed_id, ducklake_id, parent_snapshot_id,
    sequence_number, timestamp_ms, schema_id, first_row_id, added_rows, key_id, summary, manifest_ids)
SELECT %(table_id)s, snapshot_id, proposed_id, %(at)s, parent_snapshot_id, sequence_number, timestamp_ms, schema_id,
       first_row_id, added_rows, key_id, summary, manifest_ids
FROM json_populate_recordset(NULL::duckicelake_snapshot, %(snapshots)s::json);

-- insert_deletion: positions that a delete file removes from a data file
INSERT INTO duckicelake_deletion (delete_file_id, data_file_id, table_id, positions)
VALUES (%(delete_file_id)s, %(data_file_id)s, %(table_id)s, %(positions)s);

-- insert_virtual_file: the inlined rows that a file serves
INSERT INTO duckicelake_virtual_file (file_id, table_id, inlined_table, row_ids, begin_snapshots)
VALUES (%(file_id)s, %(table_id)s, %(inlined_table)s, %(row_ids)s, %(begin_snapshots)s);

-- give_row_ids: the first row id of a file that had none
UPDATE duckicelake_file SET first_row_id = %(first_row_id)s WHERE file_id = %(file_id)s;

-- hold: until when snapshots stay that list files which DuckLake gave up; joined as in `live_among`
UPDATE duckicelake_snapshot SET held_until = to_timestamp(%(until_ms)s / 1000.0)
WHERE table_id = %(table_id)s AND held_until IS NULL AND snapshot_id IN (
    SELECT s.snapshot_id
    FROM duckicelake_snapshot s, unnest(s.manifest_ids) AS l (manifest_id)
    WHERE s.table_id = %(table_id)s AND l.manifest_id IN (
        SELECT m.manifest_id
        FROM duckicelake_manifest m, unnest(m.added || m.existing) AS u (file_id)
        WHERE m.table_id = %(table_id)s AND u.file_id IN (SELECT unnest(%(file_ids)s::bigint[]))));

-- hold_longer: what was held long enough leaves now, or is there for a branch or tag and is looked at again later
UPDATE duckicelake_snapshot SET held_until = now() + interval '1 hour'
WHERE table_id = %(table_id)s AND held_until <= now();

-- see_delete: a DuckLake delete file whose positions are known
INSERT INTO duckicelake_seen_delete (delete_file_id, table_id) VALUES (%(delete_file_id)s, %(table_id)s)
ON CONFLICT DO NOTHING;

-- delete_snapshots: snapshots that leave history
DELETE FROM duckicelake_snapshot WHERE table_id = %(table_id)s AND snapshot_id = ANY(%(snapshot_ids)s);

-- drop_log: the oldest entries of the snapshot log
DELETE FROM duckicelake_snapshot_log
WHERE table_id = %(table_id)s AND ordinal IN (
    SELECT ordinal FROM duckicelake_snapshot_log WHERE table_id = %(table_id)s ORDER BY ordinal LIMIT %(count)s);

-- append_log: main moved
INSERT INTO duckicelake_snapshot_log (table_id, ordinal, snapshot_id, timestamp_ms)
SELECT %(table_id)s, last.ordinal + ordinality, (entry ->> 0)::bigint, (entry ->> 1)::bigint
FROM json_array_elements(%(entries)s::json) WITH ORDINALITY AS added (entry),
    (SELECT coalesce(max(ordinal), 0) AS ordinal FROM duckicelake_snapshot_log WHERE table_id = %(table_id)s) last;

-- create_table: a new DuckLake table
INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, end_snapshot, schema_id, table_name, path,
    path_is_relative)
VALUES (%(table_id)s, %(table_uuid)s, %(at)s, NULL, %(schema_id)s, %(table_name)s, %(path)s, true);

-- rename_table: the table's next version, under its new name
WITH old AS (
    UPDATE ducklake_table SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
    RETURNING table_uuid, path, path_is_relative, schema_id
)
INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, end_snapshot, schema_id, table_name, path,
    path_is_relative)
SELECT %(table_id)s, table_uuid, %(at)s, NULL, %(schema_id)s, %(table_name)s,
       CASE WHEN schema_id = %(schema_id)s THEN path ELSE %(absolute_path)s END,
       CASE WHEN schema_id = %(schema_id)s THEN path_is_relative ELSE false END
FROM old;

-- drop_table: everything of the table that is live ends here
WITH ended_table AS (
    UPDATE ducklake_table SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
), ended_partition AS (
    UPDATE ducklake_partition_info SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
), ended_column AS (
    UPDATE ducklake_column SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
), ended_column_tag AS (
    UPDATE ducklake_column_tag SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
), ended_data_file AS (
    UPDATE ducklake_data_file SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
), ended_delete_file AS (
    UPDATE ducklake_delete_file SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL
), ended_tag AS (
    UPDATE ducklake_tag SET end_snapshot = %(at)s WHERE object_id = %(table_id)s AND end_snapshot IS NULL
)
UPDATE ducklake_sort_info SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- table_names: live tables of a schema after a key, but for those that no request can name (`iceberg/names`)
SELECT t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.schema_name = %(schema_name)s AND s.end_snapshot IS NULL AND t.end_snapshot IS NULL
  AND t.table_name COLLATE "C" > %(after)s
  AND t.table_name !~ '^(\.\.?|)$|[\u0001-\u001f\u007f]' AND octet_length(t.table_name) <= 2000
ORDER BY t.table_name COLLATE "C"
LIMIT %(most)s;

-- is_guarded: a table whose files may not be deleted, and not because it shares them with others of this catalog
SELECT 1 FROM duckicelake_table
WHERE table_id = %(table_id)s AND lower(metadata -> 'properties' ->> 'gc.enabled') = 'false'
  AND NOT EXISTS (SELECT FROM duckicelake_guard WHERE table_id = %(table_id)s);

-- purgeable: files in the locations that the table has or had, or shared, and that no other table has
WITH place AS MATERIALIZED (
    SELECT duckicelake_canonical_path(location) || '/' AS prefix FROM duckicelake_table WHERE table_id = %(table_id)s
    UNION SELECT duckicelake_canonical_path(regexp_replace(path, '/metadata/[^/]*$', '')) || '/'
    FROM duckicelake_artifact WHERE table_id = %(table_id)s AND object_id >= 0
    UNION SELECT prefix FROM duckicelake_shared_place WHERE table_id = %(table_id)s
)
SELECT p.path
FROM (
    SELECT path FROM duckicelake_file WHERE table_id = %(table_id)s
    UNION SELECT path FROM duckicelake_artifact WHERE table_id = %(table_id)s
) p
WHERE EXISTS (SELECT FROM place WHERE starts_with(duckicelake_canonical_path(p.path), prefix))
  AND NOT EXISTS (
      SELECT FROM duckicelake_file o
      WHERE duckicelake_name_hash(o.path) = duckicelake_name_hash(p.path) AND o.path = p.path
        AND o.table_id <> %(table_id)s AND NOT o.is_released);

-- take_held: rows that keep DuckLake's orphan cleaner from files of the table, now of no other; they end with it
UPDATE ducklake_delete_file d SET table_id = %(table_id)s
FROM duckicelake_file f
WHERE f.table_id = %(table_id)s AND d.table_id <> %(table_id)s AND d.begin_snapshot = duckicelake_never()
  AND duckicelake_file_name(d.path) = duckicelake_file_name(f.path)
  AND duckicelake_canonical_path(d.path) = duckicelake_canonical_path(f.path)
  AND NOT EXISTS (
      SELECT FROM duckicelake_file o
      WHERE o.table_id <> %(table_id)s AND NOT o.is_released AND duckicelake_keeps_files(o.table_id)
        AND duckicelake_canonical_path(o.path) = duckicelake_canonical_path(d.path)
        AND duckicelake_name_hash(o.path) = duckicelake_name_hash(d.path));

-- schedule: DuckDB's next cleanup deletes the files, but those that DuckLake still names: its own expiry schedules these
INSERT INTO ducklake_files_scheduled_for_deletion (data_file_id, path, path_is_relative, schedule_start)
SELECT %(first_file_id)s + p.ordinal - 1, p.path, false, clock_timestamp()
FROM unnest(%(paths)s::text[]) WITH ORDINALITY AS p (path, ordinal);

-- outlive_drop: a table dropped without purge keeps its files, whatever DuckDB expires
UPDATE duckicelake_table SET outlives_drop = true WHERE table_id = %(table_id)s;

-- forget: everything that the side tables know of a table
WITH tables AS (DELETE FROM duckicelake_table WHERE table_id = %(table_id)s),
     dropped AS (DELETE FROM duckicelake_dropped WHERE kind = 'table' AND object_id = %(table_id)s),
     snapshots AS (DELETE FROM duckicelake_snapshot WHERE table_id = %(table_id)s),
     log AS (DELETE FROM duckicelake_snapshot_log WHERE table_id = %(table_id)s),
     manifests AS (DELETE FROM duckicelake_manifest WHERE table_id = %(table_id)s),
     files AS (DELETE FROM duckicelake_file WHERE table_id = %(table_id)s),
     deletions AS (DELETE FROM duckicelake_deletion WHERE table_id = %(table_id)s),
     exported AS (DELETE FROM duckicelake_seen_delete WHERE table_id = %(table_id)s),
     virtual AS (DELETE FROM duckicelake_virtual_file WHERE table_id = %(table_id)s),
     refs AS (DELETE FROM duckicelake_file_ref WHERE table_id = %(table_id)s),
     txns AS (DELETE FROM duckicelake_txn WHERE table_id = %(table_id)s),
     guards AS (DELETE FROM duckicelake_guard WHERE table_id = %(table_id)s),
     places AS (DELETE FROM duckicelake_shared_place WHERE table_id = %(table_id)s),
     uploads AS (DELETE FROM duckicelake_upload WHERE table_id = %(table_id)s)
DELETE FROM duckicelake_artifact WHERE table_id = %(table_id)s;

-- dropped: tables of a UUID that are no longer there, and have no file that their heir lacks
SELECT t.table_id FROM duckicelake_table t
WHERE t.table_uuid = %(table_uuid)s AND t.table_id <> %(heir_id)s
  AND NOT EXISTS (SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)
  AND NOT EXISTS (
      SELECT FROM duckicelake_file f
      WHERE f.table_id = t.table_id AND NOT EXISTS (
          SELECT FROM duckicelake_file h
          WHERE duckicelake_name_hash(h.path) = duckicelake_name_hash(f.path) AND h.path = f.path
            AND h.table_id = %(heir_id)s));

-- record_registered: a metadata.json of another catalog, older than every version of ours: -1, before that -2
INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms)
VALUES (%(table_id)s, 'metadata', %(object_id)s, %(path)s, 0, '', %(timestamp_ms)s);

-- end_columns: columns that a change of schema replaces or drops
UPDATE ducklake_column SET end_snapshot = %(at)s
WHERE table_id = %(table_id)s AND end_snapshot IS NULL AND column_id = ANY(%(column_ids)s);

-- insert_columns: columns, each visible until its `until`
INSERT INTO ducklake_column (column_id, begin_snapshot, end_snapshot, table_id, column_order, column_name, column_type,
    initial_default, default_value, nulls_allowed, parent_column, default_value_type, default_value_dialect)
SELECT column_id, %(at)s, until, %(table_id)s, column_id, column_name, column_type,
    initial_default, default_value, nulls_allowed, parent_column, default_value_type, 'duckdb'
FROM json_to_recordset(%(columns)s::json) AS c (column_id bigint, until bigint, column_name text, column_type text,
    initial_default text, default_value text, nulls_allowed boolean, parent_column bigint, default_value_type text);

-- end_column_comment: the comment that a new one replaces
UPDATE ducklake_column_tag SET end_snapshot = %(at)s
WHERE table_id = %(table_id)s AND column_id = %(column_id)s AND key = 'comment' AND end_snapshot IS NULL;

-- insert_column_comment: a column's comment
INSERT INTO ducklake_column_tag (table_id, column_id, begin_snapshot, end_snapshot, key, value)
VALUES (%(table_id)s, %(column_id)s, %(at)s, NULL, 'comment', %(value)s);

-- end_table_comment: the comment that a new one replaces
UPDATE ducklake_tag SET end_snapshot = %(at)s
WHERE object_id = %(table_id)s AND key = 'comment' AND end_snapshot IS NULL;

-- insert_table_comment: a table's comment
INSERT INTO ducklake_tag (object_id, begin_snapshot, end_snapshot, key, value)
VALUES (%(table_id)s, %(at)s, NULL, 'comment', %(value)s);

-- insert_schema_version: since when the table has its schema version
INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id)
VALUES (%(at)s, %(schema_version)s, %(table_id)s);

-- end_partitioning: the keys that new ones replace
UPDATE ducklake_partition_info SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- insert_partitioning: a table's partition keys; no key rows: unpartitioned from here on
INSERT INTO ducklake_partition_info (partition_id, table_id, begin_snapshot, end_snapshot)
VALUES (%(partition_id)s, %(table_id)s, %(at)s, NULL);

-- insert_partition_key: one partition key
INSERT INTO ducklake_partition_column (partition_id, table_id, partition_key_index, column_id, transform)
VALUES (%(partition_id)s, %(table_id)s, %(key_index)s, %(column_id)s, %(transform)s);

-- end_sorting: the keys that new ones replace
UPDATE ducklake_sort_info SET end_snapshot = %(at)s WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- insert_sorting: a table's sort keys
INSERT INTO ducklake_sort_info (sort_id, table_id, begin_snapshot, end_snapshot)
VALUES (%(sort_id)s, %(table_id)s, %(at)s, NULL);

-- insert_sort_key: one sort key
INSERT INTO ducklake_sort_expression (sort_id, table_id, sort_key_index, expression, dialect, sort_direction, null_order)
VALUES (%(sort_id)s, %(table_id)s, %(key_index)s, %(expression)s, 'duckdb', %(direction)s, %(null_order)s);

-- set_options: the options of a table that a commit changes; null removes one
SELECT duckicelake_set_options(%(table_id)s, %(options)s::json);

-- register_inlined_table: where DuckDB inlines rows of the new schema version
INSERT INTO ducklake_inlined_data_tables (table_id, table_name, schema_version)
VALUES (%(table_id)s, %(table_name)s, %(schema_version)s);

-- wait_briefly: a DuckDB client that flushes has rows locked until its commit, which waits for this transaction to end
SET LOCAL lock_timeout = '100ms';

-- end_inlined_rows: inlined rows that leave main; how many have
SELECT duckicelake_end_inlined_rows(%(name)s, %(at)s, %(begins)s::bigint[], %(rows)s::bigint[]);

-- end_data_files: data files that leave main, looked up by their ids. With an index of the table's files, which the sum
-- keeps Postgres from, all of these would be read for each file
UPDATE ducklake_data_file d SET end_snapshot = %(at)s
FROM duckicelake_file f
WHERE f.file_id = ANY(%(file_ids)s) AND d.data_file_id = f.ducklake_id
  AND d.table_id + 0 = %(table_id)s AND d.end_snapshot IS NULL
RETURNING d.data_file_id;

-- unschedule: files that join a table stay, by whatever path they are scheduled
SELECT duckicelake_unschedule(%(paths)s);

-- register_files: which rows of DuckLake older files have now; none of them serves inlined rows any more
WITH registered AS (
    SELECT (pair ->> 0)::bigint AS file_id, (pair ->> 1)::bigint AS ducklake_id, (pair ->> 2)::bigint AS row_id_start
    FROM json_array_elements(%(files)s::json) AS pair
), real AS (
    DELETE FROM duckicelake_virtual_file v USING registered r WHERE v.file_id = r.file_id
)
UPDATE duckicelake_file f SET ducklake_id = r.ducklake_id, first_row_id = coalesce(f.first_row_id, r.row_id_start)
FROM registered r WHERE f.file_id = r.file_id;

-- insert_data_files: data files of main, with statistics of their columns and values of the partition keys; each a
-- document of its own of flat rows, as Postgres reads what is nested several times. Rows of the tables' own types find
-- columns by their names: those that a lake of this format lacks are left out
WITH files AS (
    INSERT INTO ducklake_data_file
    SELECT f.* FROM json_populate_recordset(
        json_populate_record(NULL::ducklake_data_file,
                             json_build_object('table_id', %(table_id)s::bigint, 'file_format', 'parquet')),
        %(files)s::json) f
), keys AS (
    INSERT INTO ducklake_file_partition_value (data_file_id, table_id, partition_key_index, partition_value)
    SELECT data_file_id, %(table_id)s, partition_key_index, partition_value
    FROM json_populate_recordset(NULL::ducklake_file_partition_value, %(values)s::json)
)
INSERT INTO ducklake_file_column_stats
SELECT s.* FROM json_populate_recordset(
    json_populate_record(NULL::ducklake_file_column_stats,
        json_build_object('table_id', %(table_id)s::bigint, 'min_is_exact', false, 'max_is_exact', false)),
    %(stats)s::json) s;

-- insert_column_mapping: what files without field ids call the columns
INSERT INTO ducklake_column_mapping (mapping_id, table_id, type) VALUES (%(mapping_id)s, %(table_id)s, 'map_by_name');

-- insert_name_mapping: what they call one of them
INSERT INTO ducklake_name_mapping (mapping_id, column_id, source_name, target_field_id, parent_column, is_partition)
VALUES (%(mapping_id)s, %(column_id)s, %(source_name)s, %(field_id)s, %(parent)s, %(is_partition)s);

-- insert_delete_file: all deletes of a data file; carries the deletes of an Iceberg client
WITH target AS (
    SELECT ducklake_id FROM duckicelake_file WHERE file_id = %(data_file_id)s
), superseded AS (
    UPDATE ducklake_delete_file d SET end_snapshot = %(at)s
    FROM target WHERE d.data_file_id = target.ducklake_id AND d.end_snapshot IS NULL
), exported AS (
    INSERT INTO duckicelake_seen_delete (delete_file_id, table_id) VALUES (%(delete_file_id)s, %(table_id)s)
)
INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, end_snapshot, data_file_id, path,
    path_is_relative, format, delete_count, file_size_bytes, footer_size, encryption_key, partial_max)
SELECT %(delete_file_id)s, %(table_id)s, %(at)s, NULL, ducklake_id, %(path)s, true, 'parquet', %(delete_count)s,
    %(file_size_bytes)s, NULL, NULL, NULL
FROM target;

-- replace_stats: table-wide statistics, also of columns; some of those replaced have none any more. Rows stay where
-- they are in the indexes, so that the next commit finds none there that have gone. Bounds are exact: where they may not
-- be, the column has no row
WITH given AS MATERIALIZED (
    SELECT (s ->> 0)::bigint AS column_id, (s ->> 1)::boolean AS contains_null, (s ->> 2)::boolean AS contains_nan,
           s ->> 3 AS min_value, s ->> 4 AS max_value
    FROM json_array_elements(%(columns)s::json) AS s
), forgotten AS (
    DELETE FROM ducklake_table_column_stats s USING json_array_elements_text(%(unknown)s::json) AS u (column_id)
    WHERE s.table_id = %(table_id)s AND s.column_id = u.column_id::bigint
), changed_columns AS (
    UPDATE ducklake_table_column_stats s
    SET contains_null = g.contains_null, contains_nan = g.contains_nan, min_value = g.min_value,
        max_value = g.max_value, extra_stats = NULL
    FROM given g
    WHERE s.table_id = %(table_id)s AND s.column_id = g.column_id
      AND (s.contains_null, s.contains_nan, s.min_value, s.max_value, s.extra_stats)
          IS DISTINCT FROM (g.contains_null, g.contains_nan, g.min_value, g.max_value, NULL)
), new_columns AS (
    INSERT INTO ducklake_table_column_stats
    SELECT r.* FROM given g, json_populate_record(NULL::ducklake_table_column_stats, json_build_object(
        'table_id', %(table_id)s::bigint, 'column_id', g.column_id, 'contains_null', g.contains_null,
        'contains_nan', g.contains_nan, 'min_value', g.min_value, 'max_value', g.max_value,
        'min_is_exact', g.min_value IS NOT NULL, 'max_is_exact', g.max_value IS NOT NULL)) r
    WHERE NOT EXISTS (
        SELECT FROM ducklake_table_column_stats s WHERE s.table_id = %(table_id)s AND s.column_id = g.column_id)
), changed AS (
    UPDATE ducklake_table_stats
    SET record_count = %(record_count)s, next_row_id = %(next_row_id)s, file_size_bytes = %(file_size_bytes)s
    WHERE table_id = %(table_id)s
    RETURNING table_id
)
INSERT INTO ducklake_table_stats (table_id, record_count, next_row_id, file_size_bytes)
SELECT %(table_id)s, %(record_count)s, %(next_row_id)s, %(file_size_bytes)s
WHERE NOT EXISTS (SELECT FROM changed);

-- forget_unlisted: what no listed snapshot needs any more; the paths of the files that it was in. Only files of manifests
-- that leave can be such. Manifests go on naming files that their snapshot removed, so rows of these stay after the files
WITH listed AS MATERIALIZED (
    SELECT DISTINCT unnest(manifest_ids) AS manifest_id FROM duckicelake_snapshot WHERE table_id = %(table_id)s
), manifests AS (
    DELETE FROM duckicelake_manifest m
    WHERE m.table_id = %(table_id)s AND NOT EXISTS (SELECT FROM listed l WHERE l.manifest_id = m.manifest_id)
    RETURNING m.manifest_id, m.added || m.existing || m.deleted AS file_ids
), leaving AS MATERIALIZED (
    SELECT DISTINCT unnest(file_ids) AS file_id FROM manifests
), shown AS MATERIALIZED (
    SELECT file_id FROM leaving WHERE file_id IN (
        SELECT unnest(m.added || m.existing) FROM duckicelake_manifest m JOIN listed USING (manifest_id))
), removed AS MATERIALIZED (
    SELECT file_id FROM leaving WHERE file_id IN (
        SELECT unnest(m.deleted) FROM duckicelake_manifest m JOIN listed USING (manifest_id))
    EXCEPT SELECT file_id FROM shown
), left_behind AS MATERIALIZED (
    SELECT file_id FROM leaving EXCEPT SELECT file_id FROM shown EXCEPT SELECT file_id FROM removed
), files AS (
    DELETE FROM duckicelake_file f USING left_behind l
    WHERE f.file_id = l.file_id AND f.table_id = %(table_id)s
    RETURNING f.file_id, f.path
), released AS (
    UPDATE duckicelake_file f SET is_released = true
    FROM removed r WHERE f.file_id = r.file_id AND NOT f.is_released
    RETURNING f.path
), deletions AS (
    DELETE FROM duckicelake_deletion d USING files WHERE d.delete_file_id = files.file_id
), virtual AS (
    DELETE FROM duckicelake_virtual_file v USING files WHERE v.file_id = files.file_id
), artifacts AS (
    DELETE FROM duckicelake_artifact a
    WHERE a.table_id = %(table_id)s
      AND (a.kind = 'manifest' AND a.object_id IN (SELECT manifest_id FROM manifests)
           OR a.kind = 'manifest-list' AND NOT EXISTS (
               SELECT FROM duckicelake_snapshot s
               WHERE s.table_id = a.table_id AND s.snapshot_id = a.object_id))
    RETURNING a.path
)
SELECT path FROM files UNION SELECT path FROM released UNION SELECT path FROM artifacts;

-- forget_held: rows of DuckLake that only kept its orphan cleaner from files which no listed snapshot needs any more; for
-- files that tables shared such a row may be another table's
DELETE FROM ducklake_delete_file d
WHERE (d.table_id = %(table_id)s OR duckicelake_file_name(d.path) = ANY(ARRAY(
           SELECT duckicelake_file_name(p) FROM unnest(%(paths)s::text[]) p)))
  AND d.begin_snapshot = duckicelake_never() AND NOT EXISTS (
    SELECT FROM duckicelake_file f
    WHERE NOT f.is_released AND duckicelake_keeps_files(f.table_id)
      AND duckicelake_canonical_path(f.path) = duckicelake_canonical_path(d.path)
      AND duckicelake_name_hash(f.path) = duckicelake_name_hash(d.path));
