-- lock: queue behind other duckicelake writers until the end of the transaction
SELECT pg_advisory_xact_lock(%(key)s # {schema_key});

-- queue: pass unless a session has the queue to itself, and then lock. What follows in the transaction are looks into
-- indexes and rows to insert: to plan them anew each time would take as long as to do them, and a plan that was made
-- while a table was small must do when it has grown
SELECT pg_advisory_xact_lock_shared(%(queue)s # {schema_key}), pg_advisory_xact_lock(%(lock)s # {schema_key}),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true);

-- queue_alone: have the queue to oneself, also when a transaction ends, until the session is left idle for too long
SELECT pg_advisory_lock(%(key)s # {schema_key}), set_config('idle_session_timeout', current_setting('statement_timeout'), false);

-- leave_queue: no more
SELECT pg_advisory_unlock(%(key)s # {schema_key}), set_config('idle_session_timeout', '0', false);

-- keep_lane: appends to a table, also when a transaction ends, until the session is left idle for too long
SELECT pg_advisory_lock(%(key)s # {short_schema_key}, %(table_id)s),
       set_config('idle_session_timeout', current_setting('statement_timeout'), false);

-- leave_lane: no more
SELECT pg_advisory_unlock(%(key)s # {short_schema_key}, %(table_id)s), set_config('idle_session_timeout', '0', false);

-- claim_snapshot: take the next snapshot id, and return when the last one was taken; no row if a DuckDB client took it
-- while we waited
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
RETURNING snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id, (
    SELECT b.snapshot_time FROM ducklake_snapshot b WHERE b.snapshot_id = ducklake_snapshot.snapshot_id - 1);

-- insert_snapshots: those that follow what was claimed
INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id)
SELECT id, %(time)s, schema_version, next_catalog_id, next_file_id
FROM unnest(%(ids)s::bigint[], %(schema_versions)s::bigint[], %(catalog_ids)s::bigint[], %(file_ids)s::bigint[])
    AS n (id, schema_version, next_catalog_id, next_file_id);

-- correct_snapshot: what was claimed is another's now, with other counters
UPDATE ducklake_snapshot
SET schema_version = %(schema_version)s, next_catalog_id = %(catalog_id)s, next_file_id = %(file_id)s
WHERE snapshot_id = %(id)s;

-- duckdb_seen: whether a session that wants a snapshot id waits for this transaction, which has taken it; and whether
-- one came too late for the last one, which is ours by its author: a transaction that had an id of
-- Postgres's was rolled back since, while a session was busy that isn't ours
SELECT EXISTS (
    SELECT FROM pg_locks w JOIN pg_locks r USING (pid)
    WHERE w.locktype = 'transactionid' AND NOT w.granted AND w.transactionid = pg_current_xact_id()::xid
      AND r.locktype = 'relation' AND r.relation = 'ducklake_snapshot'::regclass AND r.mode = 'RowExclusiveLock'),
  (SELECT CASE WHEN age(s.xmin) > 1 THEN EXISTS (
       SELECT FROM pg_stat_activity a
       WHERE a.datname = current_database() AND a.backend_type = 'client backend'
         AND a.application_name IS DISTINCT FROM current_setting('application_name')
         AND coalesce(a.state_change >= s.snapshot_time, true))
     AND EXISTS (
       SELECT FROM generate_series(1, least(age(s.xmin) - 1, 100)) AS ago
       WHERE pg_xact_status((pg_current_xact_id()::text::bigint - ago)::text::xid8) = 'aborted')
     AND EXISTS (
       SELECT FROM ducklake_snapshot_changes c WHERE c.snapshot_id = s.snapshot_id AND c.author IS NOT NULL)
     ELSE false END
   FROM ducklake_snapshot s WHERE s.xmin <> pg_current_xact_id()::xid ORDER BY s.snapshot_id DESC LIMIT 1);

-- last_snapshot: the newest one, and its age in seconds
SELECT snapshot_id, extract(epoch FROM clock_timestamp() - snapshot_time)::float8
FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1;

-- clock: Postgres's time in milliseconds since the epoch
SELECT trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- insert_changes: what the snapshot changed
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_message, commit_extra_info)
VALUES (%(snapshot_id)s, %(changes)s, %(author)s, %(message)s, %(extra_info)s);

-- version: the version of the lake's DuckLake format
SELECT value FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL;
