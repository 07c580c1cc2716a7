-- is_free: whether no process keeps Delta logs
SELECT pg_try_advisory_xact_lock(%(key)s # {schema_key});

-- lead: whether this session is the one that keeps them, from now on
SELECT pg_try_advisory_lock(%(key)s # {schema_key});

-- versions: the live tables that Iceberg clients have seen, with what counts their changes of metadata
SELECT d.table_id, d.version
FROM duckicelake_table d
WHERE EXISTS (SELECT FROM ducklake_table t WHERE t.table_id = d.table_id AND t.end_snapshot IS NULL);

-- enabled: those of the tables that want a Delta log beside them
SELECT table_id FROM duckicelake_table
WHERE table_id = ANY(%(table_ids)s) AND metadata -> 'properties' ->> 'delta.enabled' = 'true';

-- abandoned: tables with a log that don't want one any more, or that are gone
SELECT l.table_id FROM duckicelake_delta_log l
WHERE NOT EXISTS (
    SELECT FROM duckicelake_table d JOIN ducklake_table t ON t.table_id = d.table_id AND t.end_snapshot IS NULL
    WHERE d.table_id = l.table_id AND d.metadata -> 'properties' ->> 'delta.enabled' = 'true');

-- log: the log of a table
SELECT root, version, oldest, protocol, metadata, table_version, is_looked_at, problem FROM duckicelake_delta_log WHERE table_id = %(table_id)s;

-- lock: how far the log of a table is, for one who is about to add to it
SELECT version, table_version <= %(table_version)s FROM duckicelake_delta_log
WHERE table_id = %(table_id)s FOR UPDATE;

-- newest: the newest version of a log
SELECT v.version, v.snapshot_id, v.logged_ms, v.timestamp_ms
FROM duckicelake_delta_log l JOIN duckicelake_delta_version v USING (table_id, version)
WHERE l.table_id = %(table_id)s;

-- begin: a log that has nothing in it yet; none if another process has begun it
INSERT INTO duckicelake_delta_log (table_id, root, version, oldest, protocol, metadata, table_version)
VALUES (%(table_id)s, %(root)s, 0, 0, %(protocol)s, %(metadata)s, %(table_version)s)
ON CONFLICT DO NOTHING
RETURNING version;

-- advance: the log has a newer version
UPDATE duckicelake_delta_log
SET version = %(version)s, protocol = %(protocol)s, metadata = %(metadata)s, problem = NULL,
    table_version = %(table_version)s, is_looked_at = false
WHERE table_id = %(table_id)s;

-- looked_at: up to which version of the table's metadata the log was looked at, and why it isn't in step; null if it is
UPDATE duckicelake_delta_log SET table_version = %(table_version)s, is_looked_at = true, problem = %(problem)s
WHERE table_id = %(table_id)s AND table_version <= %(table_version)s;

-- add_version: what a version says
INSERT INTO duckicelake_delta_version
    (table_id, version, snapshot_id, logged_ms, timestamp_ms, body, vectors_path, vectors)
VALUES (%(table_id)s, %(version)s, %(snapshot_id)s, %(logged_ms)s, %(timestamp_ms)s, %(body)s, %(vectors_path)s,
        %(vectors)s);

-- end_vectors: data files whose deletion vectors are others from a version on, or none
UPDATE duckicelake_delta_vector SET end_version = %(version)s
WHERE table_id = %(table_id)s AND path = ANY(%(paths)s) AND end_version IS NULL;

-- begin_vectors: deletion vectors from a version on
INSERT INTO duckicelake_delta_vector (table_id, path, begin_version, sha256, descriptor)
SELECT %(table_id)s, path, %(version)s, decode(sha256, 'hex'), descriptor
FROM json_to_recordset(%(vectors)s::json) AS v (path text, sha256 text, descriptor json);

-- vectors: the deletion vectors that data files have in the newest version
SELECT path, sha256, descriptor FROM duckicelake_delta_vector
WHERE table_id = %(table_id)s AND path = ANY(%(paths)s) AND end_version IS NULL;

-- unwritten: versions whose files may not be there yet, in order; all of the log's, where asked for
SELECT version, body, vectors_path, vectors FROM duckicelake_delta_version
WHERE table_id = %(table_id)s AND version > %(after)s AND (%(all)s OR NOT is_written)
ORDER BY version LIMIT %(most)s;

-- written: the files of versions are there
UPDATE duckicelake_delta_version SET is_written = true
WHERE table_id = %(table_id)s AND version = ANY(%(versions)s);

-- readable: the oldest version from which on the snapshots of all are listed, whose files are kept
SELECT coalesce(max(v.version) + 1, 0) FROM duckicelake_delta_version v
WHERE v.table_id = %(table_id)s AND v.snapshot_id IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM duckicelake_snapshot s WHERE s.table_id = v.table_id AND s.snapshot_id = v.snapshot_id);

-- vector_files: files of deletion vectors that versions from one on don't need
SELECT v.vectors_path FROM duckicelake_delta_version v
WHERE v.table_id = %(table_id)s AND v.version < %(oldest)s AND v.vectors_path IS NOT NULL
  AND NOT EXISTS (
      SELECT FROM duckicelake_delta_vector d
      WHERE d.table_id = v.table_id AND d.begin_version = v.version
        AND (d.end_version IS NULL OR d.end_version > %(oldest)s));

-- cut: the log begins later
UPDATE duckicelake_delta_log SET oldest = %(oldest)s WHERE table_id = %(table_id)s;

-- cut_versions: versions that are gone; the row of one whose vectors are needed stays
DELETE FROM duckicelake_delta_version v
WHERE v.table_id = %(table_id)s AND v.version < %(oldest)s
  AND NOT EXISTS (
      SELECT FROM duckicelake_delta_vector d
      WHERE d.table_id = v.table_id AND d.begin_version = v.version
        AND (d.end_version IS NULL OR d.end_version > %(oldest)s));

-- cut_vectors: vectors of versions that are gone
DELETE FROM duckicelake_delta_vector WHERE table_id = %(table_id)s AND end_version <= %(oldest)s;

-- forget: a log that is no more
WITH log AS (DELETE FROM duckicelake_delta_log WHERE table_id = %(table_id)s),
vector AS (DELETE FROM duckicelake_delta_vector WHERE table_id = %(table_id)s)
DELETE FROM duckicelake_delta_version WHERE table_id = %(table_id)s;
