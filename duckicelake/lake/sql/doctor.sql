-- server_version: as people write it
SELECT current_setting('server_version');

-- session_settings: values that sessions begin with, by database, role and configuration
SELECT name, reset_val, 'this login' FROM pg_settings WHERE name = ANY(%(names)s)
UNION ALL
SELECT split_part(config, '=', 1), split_part(config, '=', 2),
       coalesce('role ' || r.rolname, 'all roles') || coalesce(' in database ' || d.datname, '')
FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS config
LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase
WHERE split_part(config, '=', 1) = ANY(%(names)s) AND (s.setdatabase = 0 OR d.datname = current_database());

-- triggers: ours that are enabled, with their tables
SELECT tgname::text, relname::text
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE tgname LIKE 'duckicelake%' AND tgenabled IN ('O', 'A') AND pg_table_is_visible(tgrelid);

-- newest_snapshots: the newest id, the newest id missing among the last 100 with the time of the one that follows it, how
-- many of these record no changes, and the newest that is behind an earlier one: no writer saw that one
WITH newest AS (
    SELECT snapshot_id, snapshot_time, snapshot_id - lag(snapshot_id) OVER earlier AS step,
           schema_version < lag(schema_version) OVER earlier OR next_catalog_id < lag(next_catalog_id) OVER earlier
           OR next_file_id < lag(next_file_id) OVER earlier AS is_behind
    FROM (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 100) last_ones
    WINDOW earlier AS (ORDER BY snapshot_id)
)
SELECT max(snapshot_id),
       max(snapshot_id - 1) FILTER (WHERE step > 1),
       (array_agg(snapshot_time ORDER BY snapshot_id DESC) FILTER (WHERE step > 1))[1],
       count(*) FILTER (WHERE NOT EXISTS (
           SELECT FROM ducklake_snapshot_changes changes WHERE changes.snapshot_id = newest.snapshot_id)),
       max(snapshot_id) FILTER (WHERE is_behind)
FROM newest;

-- may_have_expired: whether snapshots were deleted since the lake is served, or before a moment at which it wasn't yet
SELECT epoch > options OR coalesce(%(at)s < (SELECT min(applied_at) FROM duckicelake_migration), true) FROM duckicelake_epoch;
