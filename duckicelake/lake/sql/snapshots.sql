-- lock: queue behind other duckicelake writers until the end of the transaction
SELECT pg_advisory_xact_lock(%(key)s);

-- queue: pass unless somebody has the queue to itself
SELECT pg_advisory_xact_lock_shared(%(key)s);

-- queue_alone: have the queue to oneself
SELECT pg_advisory_xact_lock(%(key)s);

-- insert_snapshot: take the next snapshot id; no row if a DuckDB client took it while we waited
INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
SELECT snapshot_id + 1,
       greatest(clock_timestamp(), snapshot_time),
       schema_version + %(schema_changes)s,
       next_catalog_id + %(catalog_ids)s,
       next_file_id + %(file_ids)s
FROM ducklake_snapshot
ORDER BY snapshot_id DESC
LIMIT 1
ON CONFLICT DO NOTHING
RETURNING snapshot_id, schema_version, next_catalog_id - %(catalog_ids)s, next_file_id - %(file_ids)s, snapshot_time;

-- insert_changes: what the snapshot changed
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message, commit_extra_info)
VALUES (%(snapshot_id)s, %(changes)s, %(author)s, %(message)s, %(extra_info)s);
