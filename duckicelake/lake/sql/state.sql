-- table_id: the live table of a name
SELECT CASE WHEN s.is_nested THEN duckicelake_refuse_nested(s.schema_name || '.' || t.table_name) ELSE t.table_id END
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.schema_name = %(schema_name)s AND t.table_name = %(table_name)s
  AND s.end_snapshot IS NULL AND t.end_snapshot IS NULL;

-- table_row: a table as the side tables hold it
SELECT table_id, table_uuid::text, location, version, caught_up_to, epoch, ducklake_id, format_version,
       last_sequence_number, next_row_id, last_updated_ms, current_snapshot_id, metadata
FROM duckicelake_table
WHERE table_id = %(table_id)s;

-- snapshots: the listed snapshots of a table with their manifest lists, oldest first, after one of DuckLake's.
-- The lists are looked up one by one: joined, by a plan for statistics of before, they take time quadratic in their number
SELECT s.snapshot_id, s.proposed_id, s.ducklake_id, s.parent_snapshot_id, s.sequence_number, s.timestamp_ms,
       s.schema_id, s.first_row_id, s.added_rows, s.key_id, s.summary, s.manifest_ids, (
    SELECT a.path FROM duckicelake_artifact a
    WHERE a.table_id = s.table_id AND a.kind = 'manifest-list' AND a.object_id = s.snapshot_id)
FROM duckicelake_snapshot s
WHERE s.table_id = %(table_id)s AND s.ducklake_id > %(after)s
ORDER BY s.ducklake_id, s.sequence_number, s.timestamp_ms, s.snapshot_id;

-- snapshot_page: the newest of the listed snapshots of a table, or of those before one, newest first
SELECT s.snapshot_id, s.proposed_id, s.ducklake_id, s.parent_snapshot_id, s.sequence_number, s.timestamp_ms,
       s.schema_id, s.first_row_id, s.added_rows, s.key_id, s.summary, ARRAY[]::bigint[], NULL
FROM duckicelake_snapshot s
WHERE s.table_id = %(table_id)s
  AND (%(before)s::bigint IS NULL OR (s.ducklake_id, s.sequence_number, s.timestamp_ms, s.snapshot_id) < (
    SELECT b.ducklake_id, b.sequence_number, b.timestamp_ms, b.snapshot_id
    FROM duckicelake_snapshot b WHERE b.table_id = %(table_id)s AND b.snapshot_id = %(before)s))
ORDER BY s.ducklake_id DESC, s.sequence_number DESC, s.timestamp_ms DESC, s.snapshot_id DESC
LIMIT %(most)s;

-- snapshot_count: how many snapshots a table lists, and whether one is among them
SELECT count(*), coalesce(bool_or(snapshot_id = %(before)s), false)
FROM duckicelake_snapshot WHERE table_id = %(table_id)s;

-- snapshot_extent: how many snapshots a table lists, and the first of them
SELECT count(*), (
    SELECT snapshot_id FROM duckicelake_snapshot
    WHERE table_id = %(table_id)s
    ORDER BY ducklake_id, sequence_number, timestamp_ms, snapshot_id
    LIMIT 1)
FROM duckicelake_snapshot WHERE table_id = %(table_id)s;

-- snapshot_log: which snapshots main named, newest first
SELECT snapshot_id, timestamp_ms
FROM duckicelake_snapshot_log
WHERE table_id = %(table_id)s
ORDER BY ordinal DESC
LIMIT %(most)s;

-- log_extent: the oldest entry of a snapshot log, and how many there are: their ordinals follow each other
SELECT o.snapshot_id, o.timestamp_ms, n.ordinal - o.ordinal + 1
FROM (SELECT * FROM duckicelake_snapshot_log WHERE table_id = %(table_id)s ORDER BY ordinal LIMIT 1) o,
     (SELECT max(ordinal) AS ordinal FROM duckicelake_snapshot_log WHERE table_id = %(table_id)s) n;

-- metadata_log: the metadata files up to a version, newest first
SELECT object_id, path, timestamp_ms
FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'metadata' AND object_id <= %(version)s
ORDER BY object_id DESC
LIMIT %(most)s;

-- locations: the folders below which the server wrote or read metadata of a table
SELECT DISTINCT regexp_replace(path, '/metadata/[^/]*$', '')
FROM duckicelake_artifact WHERE table_id = %(table_id)s AND object_id >= -1;

-- outdated_metadata: metadata files of ours older than the newest ones, unless another table has them too
SELECT a.path
FROM (
    SELECT path, row_number() OVER (ORDER BY object_id DESC) AS age, object_id
    FROM duckicelake_artifact
    WHERE table_id = %(table_id)s AND kind = 'metadata' AND object_id <= %(version)s
) a
WHERE a.age > %(kept)s AND a.object_id >= 0
  AND NOT EXISTS (
      SELECT FROM duckicelake_artifact o
      WHERE duckicelake_name_hash(o.path) = duckicelake_name_hash(a.path) AND o.path = a.path
        AND o.table_id <> %(table_id)s);

-- forget_metadata: metadata files that were deleted
DELETE FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'metadata' AND path = ANY(%(paths)s);

-- manifests: manifests without their file ids, with what was written for them
SELECT m.manifest_id, m.content, m.format_version, m.spec_id, m.schema_id, m.sequence_number, m.min_sequence_number,
       m.added_snapshot_id, cardinality(m.added) + cardinality(m.existing), a.path, a.length, a.facts, m.is_laid_out
FROM duckicelake_manifest m
LEFT JOIN duckicelake_artifact a
  ON a.table_id = m.table_id AND a.kind = 'manifest' AND a.object_id = m.manifest_id
WHERE m.manifest_id = ANY(%(manifest_ids)s);

-- entries: the files of manifests with the status of their entries, in manifest order
SELECT e.manifest_id, e.status, f.file_id, f.content, f.path, f.file_format, f.spec_id, f.partition, f.record_count,
       f.file_size_in_bytes, f.metrics, f.added_snapshot_id, f.sequence_number, f.file_sequence_number,
       f.first_row_id, f.ducklake_id
FROM (
    SELECT manifest_id, 1 AS status, file_id, ordinal
    FROM duckicelake_manifest, unnest(added) WITH ORDINALITY AS u (file_id, ordinal)
    WHERE manifest_id = ANY(%(manifest_ids)s)
    UNION ALL
    SELECT manifest_id, 0, file_id, ordinal
    FROM duckicelake_manifest, unnest(existing) WITH ORDINALITY AS u (file_id, ordinal)
    WHERE manifest_id = ANY(%(manifest_ids)s)
    UNION ALL
    SELECT manifest_id, 2, file_id, ordinal
    FROM duckicelake_manifest, unnest(deleted) WITH ORDINALITY AS u (file_id, ordinal)
    WHERE manifest_id = ANY(%(manifest_ids)s)
) e
JOIN duckicelake_file f USING (file_id)
ORDER BY e.manifest_id, e.status = 0, e.status, e.ordinal;

-- virtual_files: the inlined rows that files hold, by position; long lists are read soonest from JSON
SELECT file_id, inlined_table, to_json(row_ids), to_json(begin_snapshots)
FROM duckicelake_virtual_file
WHERE table_id = %(table_id)s AND file_id = ANY(%(file_ids)s);


-- deletions: the positions that delete files remove
SELECT delete_file_id, data_file_id, positions
FROM duckicelake_deletion
WHERE table_id = %(table_id)s AND delete_file_id = ANY(%(file_ids)s);

-- file_ids: ids for new files, before any lock
SELECT nextval('duckicelake_file_id') FROM generate_series(1, %(count)s);

-- manifest_ids: ids for new manifests, before any lock
SELECT nextval('duckicelake_manifest_id') FROM generate_series(1, %(count)s);

-- live_files: the files that manifests list as live, in short
SELECT f.file_id, f.content, f.sequence_number, f.ducklake_id, f.file_format, m.manifest_id
FROM duckicelake_manifest m, unnest(m.added || m.existing) AS u (file_id)
JOIN duckicelake_file f USING (file_id)
WHERE m.manifest_id = ANY(%(manifest_ids)s);

-- live_virtual: those of the files that the manifests list as live which serve inlined rows, and how many
SELECT cardinality(v.row_ids), f.file_id, f.content, f.sequence_number, f.ducklake_id, f.file_format
FROM duckicelake_virtual_file v JOIN duckicelake_file f USING (file_id)
WHERE v.table_id = %(table_id)s AND v.file_id IN (
    SELECT unnest(m.added || m.existing) FROM duckicelake_manifest m
    WHERE m.manifest_id = ANY(%(manifest_ids)s) AND m.content = 0);

-- live_data: data files, by their own ids or by DuckLake's, that main shows as of one of DuckLake's snapshots
SELECT f.file_id, f.content, f.sequence_number, f.ducklake_id, f.file_format
FROM duckicelake_file f JOIN ducklake_data_file d ON d.data_file_id = f.ducklake_id
WHERE f.file_id IN (
    SELECT unnest(%(file_ids)s::bigint[])
    UNION ALL
    SELECT file_id FROM duckicelake_file WHERE table_id = %(table_id)s AND ducklake_id = ANY(%(lake_ids)s))
  AND f.table_id = %(table_id)s AND f.content = 0
  AND d.begin_snapshot <= %(at)s AND (d.end_snapshot IS NULL OR d.end_snapshot > %(at)s);

-- live_deletes: delete files that the manifests list as live and that delete from any of the data files
SELECT f.file_id, f.content, f.sequence_number, f.ducklake_id, f.file_format
FROM duckicelake_file f
WHERE f.file_id IN (
    SELECT delete_file_id FROM duckicelake_deletion
    WHERE table_id = %(table_id)s AND data_file_id = ANY(%(file_ids)s))
  AND f.file_id IN (
    SELECT unnest(m.added || m.existing) FROM duckicelake_manifest m
    WHERE m.manifest_id = ANY(%(manifest_ids)s) AND m.content = 1);

-- files: files by id
SELECT file_id, content, path, file_format, spec_id, partition, record_count, file_size_in_bytes,
       metrics, added_snapshot_id, sequence_number, file_sequence_number, first_row_id, ducklake_id
FROM duckicelake_file
WHERE file_id = ANY(%(file_ids)s);

-- data_files_at: data files at paths, live or not
SELECT f.file_id FROM (SELECT DISTINCT unnest(%(paths)s::text[]) AS path) w
JOIN duckicelake_file f ON duckicelake_name_hash(f.path) = duckicelake_name_hash(w.path) AND f.path = w.path
WHERE f.table_id = %(table_id)s AND f.content = 0;

-- files_without_row_ids: data files that were never on main
SELECT file_id, record_count FROM duckicelake_file
WHERE table_id = %(table_id)s AND content = 0 AND first_row_id IS NULL
ORDER BY file_id;

-- sharing: live tables that have any of the files
WITH wanted AS MATERIALIZED (SELECT DISTINCT duckicelake_canonical_path(p) AS path FROM unnest(%(paths)s::text[]) p)
SELECT DISTINCT s.schema_name, t.table_name
FROM wanted w
JOIN duckicelake_file f ON duckicelake_name_hash(f.path) = duckicelake_name_hash(w.path)
    AND duckicelake_canonical_path(f.path) = w.path
JOIN ducklake_table t USING (table_id)
JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL;

-- live_among: those of the files that the manifests list as live; joined, as `&&` would compare each with each
SELECT m.manifest_id, u.file_id
FROM duckicelake_manifest m, unnest(m.added || m.existing) AS u (file_id)
WHERE m.manifest_id = ANY(%(manifest_ids)s) AND u.file_id IN (SELECT unnest(%(file_ids)s::bigint[]));

-- manifests_at: manifests of a table by the path at which they were written
SELECT a.path, a.object_id FROM (SELECT DISTINCT unnest(%(paths)s::text[]) AS path) w
JOIN duckicelake_artifact a ON duckicelake_name_hash(a.path) = duckicelake_name_hash(w.path) AND a.path = w.path
WHERE a.table_id = %(table_id)s AND a.kind = 'manifest';

-- deletions_of: the positions that are deleted from data files
SELECT delete_file_id, data_file_id, positions
FROM duckicelake_deletion
WHERE table_id = %(table_id)s AND data_file_id = ANY(%(file_ids)s);

-- freshness: whether what is known of tables is still so, in the order of the tables that are there. An id of a schema or
-- view that is a table's, too, makes a table look touched that isn't, and so do names; far behind, each counts as touched.
-- DIUF1 if the lake has a format that this server doesn't know. Many requests ask together, so that a table in a nested
-- schema is left out here, and refused where it is looked up alone
SELECT w.ordinal, t.table_id, d.version, d.caught_up_to, n.newest, e.epoch,
       EXISTS (SELECT FROM duckicelake_snapshot h WHERE h.table_id = t.table_id AND h.held_until <= now()),
       n.newest - w.checked_upto <= 1000 AND n.newest - w.checked_upto = (
           SELECT count(*) FROM ducklake_snapshot_changes c
           WHERE c.snapshot_id > w.checked_upto AND c.snapshot_id <= n.newest
             AND strpos(coalesce(c.changes_made, '') || ',', ':' || t.table_id || ',') = 0) IS TRUE,
       n.seen
FROM ROWS FROM (json_to_recordset(%(asked)s::json) AS (schema_name text, table_name text, checked_upto bigint))
     WITH ORDINALITY AS w (schema_name, table_name, checked_upto, ordinal)
CROSS JOIN (SELECT max(snapshot_id) AS newest, pg_current_snapshot()::text AS seen FROM ducklake_snapshot) n
CROSS JOIN duckicelake_epoch e
JOIN duckicelake_schemas() s ON s.schema_name = w.schema_name AND s.end_snapshot IS NULL AND NOT s.is_nested
JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = w.table_name AND t.end_snapshot IS NULL
LEFT JOIN duckicelake_table d ON d.table_id = t.table_id
WHERE duckicelake_require_known(false);

-- epoch: grows whenever DuckDB expires snapshots or sets an option of a table
SELECT epoch FROM duckicelake_epoch;

-- expired: listed snapshots whose DuckLake snapshot is gone
SELECT s.snapshot_id FROM duckicelake_snapshot s
WHERE s.table_id = %(table_id)s
  AND NOT EXISTS (SELECT FROM ducklake_snapshot d WHERE d.snapshot_id = s.ducklake_id);

-- standing: DuckLake's newest snapshot, the epoch, a table's listed snapshots whose files DuckLake gave up and that were
-- held long enough, whether it has manifests of an older contract of metrics, whether it was served before added files
-- were examined, its live tags but for comments, and its `table_row`, of nulls if there is none
SELECT (SELECT max(snapshot_id) FROM ducklake_snapshot), e.epoch,
       ARRAY(SELECT snapshot_id FROM duckicelake_snapshot WHERE table_id = %(table_id)s AND held_until <= now()),
       EXISTS (SELECT FROM duckicelake_artifact a
               WHERE a.table_id = %(table_id)s AND a.kind = 'manifest' AND a.facts ->> 'contract' IS NULL),
       EXISTS (SELECT FROM duckicelake_unexamined WHERE table_id = %(table_id)s),
       (SELECT json_agg(json_build_array(g.column_id, g.key, g.value) ORDER BY g.column_id NULLS FIRST, g.key)
        FROM (SELECT NULL::bigint, key, value FROM ducklake_tag
              WHERE object_id = %(table_id)s AND key <> 'comment' AND end_snapshot IS NULL
              UNION ALL
              SELECT column_id, key, value FROM ducklake_column_tag
              WHERE table_id = %(table_id)s AND key <> 'comment' AND end_snapshot IS NULL) AS g (column_id, key, value)
        WHERE g.value IS NOT NULL),
       t.table_id, t.table_uuid::text, t.location, t.version, t.caught_up_to, t.epoch, t.ducklake_id, t.format_version,
       t.last_sequence_number, t.next_row_id, t.last_updated_ms, t.current_snapshot_id, t.metadata
FROM duckicelake_epoch e LEFT JOIN duckicelake_table t ON t.table_id = %(table_id)s;

-- artifacts: what was written for a table, older metadata aside
SELECT a.path, a.length
FROM duckicelake_artifact a JOIN duckicelake_table t USING (table_id)
WHERE a.table_id = %(table_id)s AND (a.kind <> 'metadata' OR a.object_id = t.version);

-- main_artifacts: of that, what a reader of main needs
SELECT path, length FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'metadata'
  AND object_id = (SELECT version FROM duckicelake_table WHERE table_id = %(table_id)s)
UNION ALL
SELECT path, length FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'manifest-list'
  AND object_id = (SELECT current_snapshot_id FROM duckicelake_table WHERE table_id = %(table_id)s)
UNION ALL
SELECT path, length FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'manifest' AND object_id = ANY(ARRAY(
    SELECT unnest(s.manifest_ids)
    FROM duckicelake_table t
    JOIN duckicelake_snapshot s ON s.table_id = t.table_id AND s.snapshot_id = t.current_snapshot_id
    WHERE t.table_id = %(table_id)s));

-- last_artifacts: what was written for a table in the two minutes up to the last of it
SELECT path, length
FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind <> 'metadata' AND written_at >= (
    SELECT max(written_at) - interval '2 minutes'
    FROM duckicelake_artifact
    WHERE table_id = %(table_id)s AND kind <> 'metadata');

-- forget_artifacts: files that are lost, and the lists and metadata that name them
DELETE FROM duckicelake_artifact a
USING duckicelake_table t
WHERE a.table_id = %(table_id)s AND t.table_id = a.table_id AND (
    a.path = ANY(%(paths)s)
    OR (a.kind = 'metadata' AND a.object_id = t.version)
    OR (a.kind = 'manifest-list' AND EXISTS (
        SELECT FROM duckicelake_snapshot s
        JOIN duckicelake_artifact m
          ON m.table_id = a.table_id AND m.kind = 'manifest' AND m.object_id = ANY(s.manifest_ids)
        WHERE s.table_id = a.table_id AND s.snapshot_id = a.object_id AND m.path = ANY(%(paths)s))));

-- set_examined: what was served of a table is examined
DELETE FROM duckicelake_unexamined WHERE table_id = %(table_id)s;

-- forget_lake_files: files that aren't DuckLake's any more, though its own are there: others of their rows are
UPDATE duckicelake_file SET ducklake_id = NULL WHERE file_id = ANY(%(file_ids)s);
