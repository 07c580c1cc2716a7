-- lock: queue behind other duckicelake writers until the end of the transaction
SELECT pg_advisory_xact_lock(%(key)s);

-- queue: pass unless somebody has the queue to itself
SELECT pg_advisory_xact_lock_shared(%(key)s);

-- queue_alone: have the queue to oneself, also when a transaction ends
SELECT pg_advisory_lock(%(key)s);

-- leave_queue: no more
SELECT pg_advisory_unlock(%(key)s);

-- keep_lane: appends to a table, also when a transaction ends
SELECT pg_advisory_lock(%(key)s, %(table_id)s);

-- leave_lane: no more
SELECT pg_advisory_unlock(%(key)s, %(table_id)s);

-- claim_snapshot: take the next snapshot id; no row if a DuckDB client took it while we waited
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
RETURNING snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id;

-- insert_snapshots: those that follow what was claimed
INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
SELECT id, %(time)s, schema_version, next_catalog_id, next_file_id
FROM unnest(%(ids)s::bigint[], %(schema_versions)s::bigint[], %(catalog_ids)s::bigint[], %(file_ids)s::bigint[])
    AS n (id, schema_version, next_catalog_id, next_file_id);

-- correct_snapshot: what was claimed is another's now, with other counters
UPDATE ducklake_snapshot
SET schema_version = %(schema_version)s, next_catalog_id = %(catalog_id)s, next_file_id = %(file_id)s
WHERE snapshot_id = %(id)s;

-- duckdb_waits: whether somebody who wants a snapshot id waits for this transaction, which has taken it
SELECT EXISTS (
    SELECT FROM pg_locks w JOIN pg_locks r USING (pid)
    WHERE w.locktype = 'transactionid' AND NOT w.granted AND w.transactionid = pg_current_xact_id()::xid
      AND r.locktype = 'relation' AND r.relation = 'ducklake_snapshot'::regclass AND r.mode = 'RowExclusiveLock');

-- last_snapshot: the newest one, and its age in seconds
SELECT snapshot_id, extract(epoch FROM clock_timestamp() - snapshot_time)::float8
FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1;

-- insert_changes: what the snapshot changed
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message, commit_extra_info)
VALUES (%(snapshot_id)s, %(changes)s, %(author)s, %(message)s, %(extra_info)s);
