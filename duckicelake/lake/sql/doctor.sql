-- server_version: as people write it
SELECT current_setting('server_version');

-- triggers: ours that are enabled, with their tables
SELECT tgname::text, relname::text
FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
WHERE tgname LIKE 'duckicelake%' AND tgenabled IN ('O', 'A') AND pg_table_is_visible(tgrelid);

-- newest_snapshots: the newest id, the newest id missing among the last 100, and how many of these record no changes
WITH newest AS (
    SELECT snapshot_id, snapshot_id - lag(snapshot_id) OVER (ORDER BY snapshot_id) AS step
    FROM (SELECT snapshot_id FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 100) last_ones
)
SELECT max(snapshot_id),
       max(snapshot_id - 1) FILTER (WHERE step > 1),
       count(*) FILTER (WHERE NOT EXISTS (
           SELECT FROM ducklake_snapshot_changes changes WHERE changes.snapshot_id = newest.snapshot_id))
FROM newest;
