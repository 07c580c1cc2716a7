-- record: files were written; racing workers write the same ones. The metadata.json counts while its version is newest,
-- and of a table that has been purged meanwhile nothing does. A list counts if it is the listed snapshot's: one that came
-- after the version may have the id of another, which has left history.
-- Waits for the disk: a worker may go on from these rows for long, and Postgres must not forget them in a crash
WITH newest AS MATERIALIZED (
    SELECT version = %(version)s AS is_newest
    FROM duckicelake_table
    WHERE table_id = %(table_id)s
    FOR SHARE
), files AS MATERIALIZED (
    SELECT * FROM json_populate_recordset(NULL::duckicelake_artifact, %(files)s::json)
), written AS (
    INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms, facts)
    SELECT %(table_id)s, kind, object_id, path, length, sha256, timestamp_ms, facts
    FROM files
    WHERE (SELECT is_newest OR kind <> 'metadata' FROM newest)
      AND (kind <> 'manifest-list' OR EXISTS (
          SELECT FROM duckicelake_snapshot s
          WHERE s.table_id = %(table_id)s AND s.snapshot_id = object_id AND s.ducklake_id <= %(caught_up_to)s))
    ON CONFLICT DO NOTHING
)
SELECT is_newest, EXISTS (
    SELECT FROM files f CROSS JOIN LATERAL (
        SELECT FROM ducklake_files_scheduled_for_deletion s
        WHERE duckicelake_file_name(s.path) = duckicelake_file_name(f.path)
        LIMIT 1) scheduled)  -- LIMIT keeps this a look into the index, however many are scheduled
FROM newest;

-- forget_lists: lists of snapshots that left history, and whose ids others get now
DELETE FROM duckicelake_artifact
WHERE table_id = %(table_id)s AND kind = 'manifest-list' AND object_id = ANY(%(snapshot_ids)s);

-- record_with: files of the version that this transaction makes, also in the place of such lists
INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms, facts)
SELECT %(table_id)s, kind, object_id, path, length, sha256, timestamp_ms, facts
FROM json_populate_recordset(NULL::duckicelake_artifact, %(files)s::json)
ON CONFLICT (table_id, kind, object_id) DO UPDATE
    SET path = excluded.path, length = excluded.length, sha256 = excluded.sha256, written_at = now();
