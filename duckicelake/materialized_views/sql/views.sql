-- insert: a materialized view, whose table the transaction makes
INSERT INTO duckicelake_materialized_view (table_id, query, schema_name, names, definer, definer_id, definer_scopes,
    definer_groups, every_seconds, on_change, snapshot_id, own_snapshot_id, fresh_as_of, sources, digest, refreshed, mode,
    reason, rows_written, seconds)
VALUES (%(table_id)s, %(query)s, %(schema_name)s, %(names)s, %(definer)s, %(definer_id)s, %(definer_scopes)s,
    %(definer_groups)s, %(every_seconds)s, %(on_change)s, %(snapshot_id)s, %(own_snapshot_id)s, %(fresh_as_of)s,
    %(sources)s, %(digest)s, clock_timestamp(), %(mode)s, %(reason)s, %(rows_written)s, %(seconds)s);

-- read: the live materialized views of a schema or all, or the one of a name, by name
SELECT v.table_id, n.schema_name, t.table_name, v.query, v.schema_name, v.names, v.definer, v.definer_id,
       v.definer_scopes, v.definer_groups, v.created, v.every_seconds, v.on_change, v.snapshot_id, v.own_snapshot_id,
       v.fresh_as_of, v.sources, v.digest, v.refreshes, v.refreshed, v.mode, v.reason, v.rows_written, v.seconds, v.error,
       v.failed_at
FROM duckicelake_materialized_view v
JOIN ducklake_table t ON t.table_id = v.table_id AND t.end_snapshot IS NULL
JOIN duckicelake_schemas() n ON n.schema_id = t.schema_id AND n.end_snapshot IS NULL
WHERE (%(schema_name)s::text IS NULL OR n.schema_name = %(schema_name)s)
  AND (%(table_name)s::text IS NULL OR t.table_name = %(table_name)s)
  AND (n.schema_name COLLATE "C", t.table_name COLLATE "C") > (%(after_schema)s::text, %(after_name)s::text)
ORDER BY n.schema_name COLLATE "C", t.table_name COLLATE "C"
LIMIT %(limit)s;

-- note_refresh: what a refresh read and wrote, unless another was faster
UPDATE duckicelake_materialized_view
SET snapshot_id = %(snapshot_id)s, own_snapshot_id = coalesce(%(own_snapshot_id)s, own_snapshot_id),
    fresh_as_of = %(fresh_as_of)s, sources = %(sources)s, digest = %(digest)s, refreshes = refreshes + 1,
    refreshed = clock_timestamp(), mode = %(mode)s, reason = %(reason)s, rows_written = %(rows_written)s,
    seconds = %(seconds)s, error = NULL, failed_at = NULL
WHERE table_id = %(table_id)s AND refreshes = %(refreshes)s;

-- note_failure: why a refresh failed
UPDATE duckicelake_materialized_view SET error = %(error)s, failed_at = clock_timestamp()
WHERE table_id = %(table_id)s;

-- change_schedule: when it is refreshed by itself
UPDATE duckicelake_materialized_view SET every_seconds = %(every_seconds)s, on_change = %(on_change)s
WHERE table_id = %(table_id)s;

-- take_lease: whether this session may refresh a view, until it is left idle for too long
SELECT l.is_held, (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout')
FROM pg_try_advisory_lock(%(key)s # {short_schema_key}, %(table_id)s) AS l (is_held),
     set_config('idle_session_timeout', CASE WHEN l.is_held THEN current_setting('statement_timeout') ELSE '0' END, false);

-- leave_lease: let another session refresh it
SELECT pg_advisory_unlock(%(key)s # {short_schema_key}, %(table_id)s), set_config('idle_session_timeout', '0', false);

-- newest: DuckLake's newest snapshot, and the time
SELECT max(snapshot_id), now() FROM ducklake_snapshot;

-- name_at: the schema and name that a table had at a snapshot, and its uuid
SELECT s.schema_name, t.table_name, t.table_uuid::text
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id)
WHERE t.table_id = %(table_id)s
  AND t.begin_snapshot <= %(snapshot_id)s AND (t.end_snapshot IS NULL OR t.end_snapshot > %(snapshot_id)s)
  AND s.begin_snapshot <= %(snapshot_id)s AND (s.end_snapshot IS NULL OR s.end_snapshot > %(snapshot_id)s);

-- view_name: the schema and name that a live view has
SELECT s.schema_name, v.view_name
FROM ducklake_view v JOIN duckicelake_schemas() s ON s.schema_id = v.schema_id AND s.end_snapshot IS NULL
WHERE v.view_id = %(view_id)s AND v.end_snapshot IS NULL;

-- due: live views that are to be refreshed by themselves, and why. What failed is tried again after some minutes; and a
-- source that changes on and on counts once its first change is old enough. Both tables of snapshots are bounded: else a
-- plan for any number of them reads all that there are
WITH live AS (
    SELECT v.*, n.schema_name AS own_schema, t.table_name,
           '(inserted_into_table|deleted_from_table|altered_table|dropped_table|inlined_insert|inlined_delete'
           '|altered_view|dropped_view):('
           || (SELECT string_agg(s ->> 'object_id', '|') FROM json_array_elements(v.sources) s) || ')(,|$)' AS pattern
    FROM duckicelake_materialized_view v
    JOIN ducklake_table t ON t.table_id = v.table_id AND t.end_snapshot IS NULL
    JOIN duckicelake_schemas() n ON n.schema_id = t.schema_id AND n.end_snapshot IS NULL
    WHERE v.every_seconds IS NOT NULL OR v.on_change
)
SELECT own_schema, table_name,
       CASE WHEN refreshed + make_interval(secs => every_seconds) <= clock_timestamp()
            THEN format('it is refreshed every %%s s', every_seconds) ELSE 'a source has changed' END
FROM live
WHERE (failed_at IS NULL OR failed_at < clock_timestamp() - make_interval(secs => %(failure_seconds)s))
  AND (refreshed + make_interval(secs => every_seconds) <= clock_timestamp()
       OR (on_change AND EXISTS (
           SELECT FROM ducklake_snapshot JOIN ducklake_snapshot_changes c USING (snapshot_id)
           WHERE snapshot_id > live.snapshot_id AND c.snapshot_id > live.snapshot_id AND c.changes_made ~ live.pattern
             AND snapshot_time <= clock_timestamp() - make_interval(secs => %(change_seconds)s))))
ORDER BY own_schema, table_name;

-- is_any_scheduled: whether a live view is refreshed by itself
SELECT EXISTS (
    SELECT FROM duckicelake_materialized_view v
    JOIN ducklake_table t ON t.table_id = v.table_id AND t.end_snapshot IS NULL
    WHERE v.every_seconds IS NOT NULL OR v.on_change);

-- scheduled: live views of some names that are refreshed by themselves: what they read, when they are due by the clock, the
-- first change of a source, the last failure, and until when their tasks wait. Changes are those that make a view due,
-- bounded as there
SELECT n.schema_name, t.table_name,
       (SELECT coalesce(json_agg((s ->> 'schema_name') || '.' || (s ->> 'name')), '[]') FROM json_array_elements(v.sources) s),
       v.every_seconds, v.refreshed + make_interval(secs => v.every_seconds),
       CASE WHEN v.on_change THEN (
           SELECT a.snapshot_time FROM ducklake_snapshot a JOIN ducklake_snapshot_changes c USING (snapshot_id)
           WHERE a.snapshot_id > v.snapshot_id AND c.snapshot_id > v.snapshot_id AND c.changes_made ~ (
               '(inserted_into_table|deleted_from_table|altered_table|dropped_table|inlined_insert|inlined_delete'
               '|altered_view|dropped_view):('
               || (SELECT string_agg(s ->> 'object_id', '|') FROM json_array_elements(v.sources) s) || ')(,|$)')
           ORDER BY a.snapshot_id LIMIT 1) END,
       v.error, v.failed_at, q.available, clock_timestamp()
FROM unnest(%(schemas)s::text[], %(tables)s::text[]) AS w (schema_name, table_name)
JOIN duckicelake_schemas() n ON n.schema_name = w.schema_name AND n.end_snapshot IS NULL
JOIN ducklake_table t ON t.schema_id = n.schema_id AND t.table_name = w.table_name AND t.end_snapshot IS NULL
JOIN duckicelake_materialized_view v ON v.table_id = t.table_id AND (v.every_seconds IS NOT NULL OR v.on_change)
LEFT JOIN duckicelake_upkeep_task q ON q.table_id = t.table_id AND q.kind = %(kind)s AND q.state = 'waiting'
ORDER BY n.schema_name, t.table_name;

-- skip_unchanged: views far behind that nothing since concerns are as fresh as the newest snapshot, so that what is looked
-- through for changes stays short. What was made or dropped since concerns them if they don't have their sources any more
-- by the same names, or if it is a macro
UPDATE duckicelake_materialized_view v
SET snapshot_id = newest.snapshot_id, fresh_as_of = now()
FROM (SELECT max(snapshot_id) AS snapshot_id FROM ducklake_snapshot) newest
WHERE v.on_change AND v.error IS NULL AND newest.snapshot_id - v.snapshot_id > %(snapshots)s
  AND NOT EXISTS (
      SELECT FROM generate_series(v.snapshot_id + 1, newest.snapshot_id) since (id)
      LEFT JOIN ducklake_snapshot_changes c ON c.snapshot_id = since.id
      WHERE since.id <> v.own_snapshot_id AND (
          c.snapshot_id IS NULL OR c.changes_made ~ '(created|dropped)_[a-z]+_macro' OR c.changes_made ~ (
          ':(' || (SELECT string_agg(s ->> 'object_id', '|') FROM json_array_elements(v.sources) s)
          || '|' || v.table_id || ')(,|$)')))
  AND NOT EXISTS (
      SELECT FROM json_to_recordset(v.sources) s (kind text, object_id bigint, schema_name text, name text)
      WHERE NOT EXISTS (
          SELECT FROM duckicelake_schemas() n
          LEFT JOIN ducklake_table t ON s.kind = 'table' AND t.table_id = s.object_id AND t.end_snapshot IS NULL
          LEFT JOIN ducklake_view w ON s.kind = 'view' AND w.view_id = s.object_id AND w.end_snapshot IS NULL
          WHERE n.schema_id = coalesce(t.schema_id, w.schema_id) AND n.end_snapshot IS NULL
            AND (n.schema_name, coalesce(t.table_name, w.view_name)) = (s.schema_name, s.name)));
