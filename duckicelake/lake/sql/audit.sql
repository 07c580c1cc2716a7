-- record: what one transaction changed, a row for each resource, with the snapshot that this transaction made of it. What
-- has none waits for its place in the changelog; the snapshots up to the last one are signed, if they aren't yet
WITH recorded AS (
    INSERT INTO duckicelake_audit (principal, address, request_id, operation, resource, result, snapshot_id, detail,
                                   client)
    SELECT changed.principal, changed.address, changed.request_id, changed.operation, changed.resource, %(result)s,
           (SELECT made.snapshot_id FROM (
                SELECT s.snapshot_id, s.xmin FROM ducklake_snapshot s
                WHERE s.snapshot_id = coalesce(
                    changed.snapshot_id,
                    (SELECT t.caught_up_to FROM duckicelake_table t WHERE t.table_id = changed.table_id),
                    (SELECT max(newest.snapshot_id) FROM ducklake_snapshot newest))
            ) made WHERE made.xmin = pg_current_xact_id()::xid),
           changed.detail, changed.client
    FROM ROWS FROM (json_to_recordset(%(changed)s::json) AS (
             principal text, address text, request_id text, operation text, resource text, table_id bigint,
             snapshot_id bigint, detail json, client json))
         WITH ORDINALITY AS changed (principal, address, request_id, operation, resource, table_id, snapshot_id, detail,
                                     client, ordinal)
    ORDER BY changed.ordinal
    RETURNING id, at, snapshot_id
), unplaced AS (
    INSERT INTO duckicelake_unplaced SELECT id FROM recorded WHERE snapshot_id IS NULL AND %(is_change)s
), signed AS (
    UPDATE ducklake_snapshot_changes c
    SET author = %(author)s,
        commit_message = coalesce(
            (SELECT coalesce(d.summary ->> 'ducklake.commit-message',
                             concat_ws(' by ', d.summary ->> 'operation',
                                       coalesce((d.summary ->> 'engine-name')
                                                    || coalesce(' ' || (d.summary ->> 'engine-version'), ''),
                                                %(engine)s::text)))
             FROM duckicelake_snapshot d WHERE d.ducklake_id = c.snapshot_id LIMIT 1),
            %(message)s)
    WHERE c.author IS NULL AND c.snapshot_id = ANY(ARRAY(
        SELECT generate_series(before.snapshot_id + 1, (SELECT max(snapshot_id) FROM recorded))
        FROM (SELECT s.snapshot_id FROM ducklake_snapshot s
              WHERE s.xmin <> pg_current_xact_id()::xid ORDER BY s.snapshot_id DESC LIMIT 1) before))
)
SELECT id, at, snapshot_id FROM recorded ORDER BY id;

-- record_signed: the same of snapshots that are known, and were signed when they were made
INSERT INTO duckicelake_audit (principal, address, request_id, operation, resource, result, snapshot_id, detail, client)
SELECT principal, address, request_id, operation, resource, %(result)s, snapshot_id, detail, client
FROM json_to_recordset(%(changed)s::json) AS changed (
    principal text, address text, request_id text, operation text, resource text, snapshot_id bigint, detail json,
    client json)
RETURNING id, at, snapshot_id;

-- entries: those asked for, newest first
SELECT id, at, principal, address, request_id, operation, resource, result, snapshot_id, detail, client
FROM duckicelake_audit
WHERE id > %(after)s AND id < coalesce(%(before)s::bigint, 9223372036854775807)
  AND (%(since)s::timestamptz IS NULL OR at >= %(since)s)
  AND (%(principal)s::text IS NULL OR principal = %(principal)s)
  AND (%(resource)s::text IS NULL OR duckicelake_is_within(resource, %(resource)s)
       OR detail ->> 'to' = %(resource)s)
  AND (%(operation)s::text IS NULL OR operation = %(operation)s)
  AND (%(result)s::text IS NULL OR result = %(result)s OR starts_with(result, %(result)s || ' '))
ORDER BY id DESC
LIMIT %(limit)s;

-- is_known: whether anything was ever called so, as far as the trail and DuckLake's tables go back
SELECT EXISTS (
    SELECT FROM duckicelake_audit
    WHERE duckicelake_is_within(resource, %(resource)s) OR detail ->> 'to' = %(resource)s
    UNION ALL
    SELECT FROM duckicelake_schemas() WHERE duckicelake_is_within(schema_name, %(resource)s)
    UNION ALL
    SELECT FROM (
        SELECT schema_id, table_name AS name FROM ducklake_table UNION ALL SELECT schema_id, view_name FROM ducklake_view
    ) named JOIN duckicelake_schemas() USING (schema_id)
    WHERE schema_name || '.' || duckicelake_escape_level(name) = %(resource)s
       OR schema_name || '.' || name = %(resource)s);

-- prune: forget some of the oldest entries from before a time
DELETE FROM duckicelake_audit WHERE id IN (
    SELECT id FROM duckicelake_audit WHERE at < %(before)s ORDER BY at LIMIT %(most)s FOR UPDATE SKIP LOCKED
);
