-- take: how far it is, and the time; no row while another worker is at it
SELECT lake_id, snapshot_id, ordinal, audit_id, streams, clock_timestamp()
FROM duckicelake_lineage_follower
FOR UPDATE SKIP LOCKED;

-- move: how far it is now
UPDATE duckicelake_lineage_follower
SET snapshot_id = %(snapshot_id)s, ordinal = %(ordinal)s, audit_id = %(audit_id)s, streams = %(streams)s::json;

-- refusals: of requests after an entry of the audit trail, and up to another
SELECT id, at, principal, request_id, operation, resource, result, client
FROM duckicelake_audit
WHERE id > %(after)s AND id <= %(upto)s AND result NOT IN ('ok', 'unchanged')
ORDER BY id;

-- noted: the last of some entries after one that are all from before a time
SELECT max(id) FROM (
    SELECT id FROM duckicelake_audit WHERE id > %(after)s AND at < %(before)s ORDER BY id LIMIT %(most)s) noted;

-- owners: of tables, as their properties say
SELECT table_id, metadata -> 'properties' ->> 'owner'
FROM duckicelake_table
WHERE table_id = ANY(%(table_ids)s::bigint[]) AND metadata -> 'properties' ->> 'owner' IS NOT NULL;

-- places: where tables lie that Iceberg clients have seen
SELECT table_id, location FROM duckicelake_table WHERE table_id = ANY(%(table_ids)s::bigint[]);

-- sources: names and places of live tables that Iceberg clients have seen, by UUID
SELECT n.schema_name, t.table_name, k.location
FROM ducklake_table t
JOIN duckicelake_table k USING (table_id)
JOIN duckicelake_schemas() n ON n.schema_id = t.schema_id AND n.end_snapshot IS NULL
WHERE t.table_uuid = ANY(%(uuids)s::uuid[]) AND t.end_snapshot IS NULL
ORDER BY n.schema_name, t.table_name;

-- named: the table or view that had a name at a snapshot
SELECT t.table_id, false
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.schema_name = %(schema_name)s AND t.table_name = %(name)s
  AND t.begin_snapshot <= %(at)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s)
UNION ALL
SELECT v.view_id, true
FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id)
WHERE s.schema_name = %(schema_name)s AND v.view_name = %(name)s
  AND v.begin_snapshot <= %(at)s AND (v.end_snapshot IS NULL OR v.end_snapshot > %(at)s)
  AND s.begin_snapshot <= %(at)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(at)s)
LIMIT 1;

-- view: what DuckDB reads of a view as it was at a snapshot
SELECT coalesce(dialect, 'duckdb'), coalesce(sql, ''), coalesce(column_aliases, ''), NULL
FROM ducklake_view
WHERE view_id = %(view_id)s AND begin_snapshot <= %(at)s
ORDER BY begin_snapshot DESC
LIMIT 1;

-- lag: how many changes wait for their events, and for how many seconds the first of them has waited
SELECT (SELECT count(*) FROM (
            SELECT FROM duckicelake_change c WHERE (c.snapshot_id, c.ordinal) > (f.snapshot_id, f.ordinal) LIMIT 10000) w),
       (SELECT extract(epoch FROM clock_timestamp() - c.at)::float8 FROM duckicelake_change c
        WHERE (c.snapshot_id, c.ordinal) > (f.snapshot_id, f.ordinal) ORDER BY c.snapshot_id, c.ordinal LIMIT 1)
FROM duckicelake_lineage_follower f;
