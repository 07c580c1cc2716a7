-- record: files of versions were written; racing workers write the same ones. The metadata.json counts while its version
-- is newest, and of a table that has been purged meanwhile nothing does. Nor does it count if the version has another,
-- whose metadata log may differ. A list counts if it is the listed snapshot's: one that came after the version may have
-- the id of another, which has left history. LIMIT keeps each look one into an index.
-- Waits for the disk: a worker may go on from these rows for long, and Postgres must not forget them in a crash
WITH asked AS MATERIALIZED (
    SELECT a.table_id, a.version, a.caught_up_to, newest.version = a.version AS is_newest
    FROM json_to_recordset(%(versions)s::json) AS a (table_id bigint, version bigint, caught_up_to bigint),
        LATERAL (SELECT version FROM duckicelake_table t WHERE t.table_id = a.table_id LIMIT 1 FOR SHARE) newest
), files AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%(files)s::json) AS f (table_id bigint, version bigint, kind text, object_id bigint,
        path text, length bigint, sha256 bytea, timestamp_ms bigint, facts json)
), written AS (
    INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms, facts)
    SELECT f.table_id, kind, object_id, path, length, sha256, timestamp_ms, facts
    FROM files f JOIN asked a ON (a.table_id, a.version) = (f.table_id, f.version)
    WHERE (a.is_newest OR kind <> 'metadata')
      AND (kind <> 'manifest-list' OR (
          SELECT true FROM duckicelake_snapshot s
          WHERE s.table_id = f.table_id AND s.snapshot_id = f.object_id AND s.ducklake_id <= a.caught_up_to LIMIT 1))
    ON CONFLICT DO NOTHING
    RETURNING table_id, kind, object_id, path
)
SELECT table_id, version,
    is_newest AND NOT EXISTS (
        SELECT FROM files f
        WHERE (f.table_id, f.version, f.kind) = (asked.table_id, asked.version, 'metadata')
          AND f.path IS DISTINCT FROM (
              SELECT w.path FROM written w
              WHERE (w.table_id, w.kind, w.object_id) = (f.table_id, f.kind, f.object_id) LIMIT 1)
          AND f.path IS DISTINCT FROM (
              SELECT r.path FROM duckicelake_artifact r
              WHERE (r.table_id, r.kind, r.object_id) = (f.table_id, f.kind, f.object_id) LIMIT 1)),
    EXISTS (SELECT FROM files WHERE duckicelake_is_scheduled(path))
FROM asked;

-- forget_lists: lists of snapshots that left history, and whose ids others get now
DELETE FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'manifest-list' AND object_id = ANY(%(snapshot_ids)s);

-- record_with: files of the version that this transaction makes, also in the place of such lists
INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms, facts)
SELECT %(table_id)s, kind, object_id, path, length, sha256, timestamp_ms, facts
FROM json_populate_recordset(NULL::duckicelake_artifact, %(files)s::json)
ON CONFLICT (table_id, kind, object_id) DO UPDATE
    SET path = excluded.path, length = excluded.length, sha256 = excluded.sha256, written_at = now();
