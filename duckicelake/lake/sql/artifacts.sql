-- record: files were written; racing workers write the same ones. The metadata.json counts while its version is newest.
-- What is lost with the last moments before a crash is only done again, so nobody waits for the disk
WITH newest AS MATERIALIZED (
    SELECT t.version = %(version)s AS is_newest
    FROM duckicelake_table t, set_config('synchronous_commit', 'off', true)
    WHERE t.table_id = %(table_id)s
    FOR SHARE OF t
), written AS (
    INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms, facts)
    SELECT %(table_id)s, kind, object_id, path, length, sha256, timestamp_ms, facts
    FROM unnest(%(kinds)s::text[], %(object_ids)s::bigint[], %(paths)s::text[], %(lengths)s::bigint[],
                %(hashes)s::bytea[], %(times)s::bigint[], %(facts)s::json[])
        AS u (kind, object_id, path, length, sha256, timestamp_ms, facts)
    WHERE kind <> 'metadata' OR (SELECT is_newest FROM newest)
    ON CONFLICT DO NOTHING
)
SELECT is_newest, EXISTS (
    SELECT FROM unnest(%(paths)s::text[]) AS p (path) CROSS JOIN LATERAL (
        SELECT FROM ducklake_files_scheduled_for_deletion s
        WHERE duckicelake_file_name(s.path) = duckicelake_file_name(p.path)
        LIMIT 1) scheduled)  -- LIMIT keeps this a look into the index, however many are scheduled
FROM newest;
