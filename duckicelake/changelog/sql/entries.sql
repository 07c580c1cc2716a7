-- changes: what comes after a position, in order
SELECT snapshot_id, ordinal, at, kind, namespace, name, previous, object_id, uuid::text, source, principal, agent,
       request_id, operation, iceberg_snapshot_id, facts
FROM duckicelake_change
WHERE (snapshot_id, ordinal) > (%(snapshot_id)s, %(ordinal)s) AND {wanted}
ORDER BY snapshot_id, ordinal
LIMIT %(limit)s;

-- latest: what comes before a position, the newest first
SELECT snapshot_id, ordinal, at, kind, namespace, name, previous, object_id, uuid::text, source, principal, agent,
       request_id, operation, iceberg_snapshot_id, facts
FROM duckicelake_change
WHERE (snapshot_id, ordinal) < (%(snapshot_id)s, %(ordinal)s) AND {wanted}
ORDER BY snapshot_id DESC, ordinal DESC
LIMIT %(limit)s;

-- newest: the last position up to which the lake has been followed; changes may have come before it, none will
SELECT snapshot_id, ordinal FROM duckicelake_chronicle;

-- oldest: the first position that is kept
SELECT snapshot_id, ordinal FROM duckicelake_change ORDER BY snapshot_id, ordinal LIMIT 1;

-- prune: forget some of the oldest changes from before a time
DELETE FROM duckicelake_change WHERE (snapshot_id, ordinal) IN (
    SELECT snapshot_id, ordinal FROM duckicelake_change
    WHERE at < %(before)s ORDER BY at LIMIT %(most)s FOR UPDATE SKIP LOCKED
);

-- lead: whether this session is the one that follows the lake, from now on
SELECT pg_try_advisory_lock(%(key)s # {schema_key});

-- is_free: whether no process follows the lake
SELECT pg_try_advisory_xact_lock(%(key)s # {schema_key});

-- fold_alone: wait until no other process folds; what the transaction sees is what there is then, as nothing was read before
BEGIN ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE duckicelake_chronicle IN EXCLUSIVE MODE;

-- be_awaited: be one of those for whose sake the lake is followed without delay
SELECT pg_advisory_lock_shared(%(key)s # {schema_key});

-- news: how far the changelog is, whether no reader awaits it, whether changes without a snapshot wait for their place, and
-- the next snapshots in order; of each those of Iceberg that its very transaction was for, and what the audit trail says
SELECT p.snapshot_id, p.ordinal, p.next_file_id, (SELECT pg_try_advisory_xact_lock(%(awaited)s # {schema_key})),
       EXISTS (SELECT FROM duckicelake_unplaced),
       s.snapshot_id, s.at, s.next_file_id, s.changes_made, s.author, s.commit_message,
       (SELECT json_agg(json_build_array(i.table_id, i.snapshot_id, i.summary) ORDER BY i.sequence_number)
        FROM duckicelake_snapshot i WHERE i.ducklake_id = s.snapshot_id AND i.xmin = s.made_by),
       (SELECT json_agg(json_build_array(a.principal, a.request_id, a.operation, a.resource, a.detail, a.client)
                        ORDER BY a.id)
        FROM duckicelake_audit a WHERE a.snapshot_id = s.snapshot_id AND a.result = 'ok')
FROM duckicelake_chronicle p
LEFT JOIN LATERAL (
    SELECT s.snapshot_id, coalesce(s.snapshot_time, 'epoch') AS at, coalesce(s.next_file_id, 0) AS next_file_id,
           c.changes_made, c.author, c.commit_message, s.xmin AS made_by
    FROM ducklake_snapshot s
    LEFT JOIN ducklake_snapshot_changes c ON c.snapshot_id = s.snapshot_id AND c.snapshot_id > p.snapshot_id
    WHERE s.snapshot_id > p.snapshot_id
    ORDER BY s.snapshot_id
    LIMIT %(limit)s
) s ON true
ORDER BY s.snapshot_id;

-- unplaced: entries about changes that made no snapshot, which now get their place
WITH taken AS (
    DELETE FROM duckicelake_unplaced
    WHERE audit_id IN (SELECT audit_id FROM duckicelake_unplaced ORDER BY audit_id LIMIT %(limit)s)
    RETURNING audit_id
)
SELECT a.at, a.principal, a.request_id, a.operation, a.resource, a.detail, a.client
FROM taken JOIN duckicelake_audit a ON a.id = taken.audit_id
ORDER BY a.id;

-- pass_snapshot: go on past the next snapshot, whatever is in it
UPDATE duckicelake_chronicle c
SET snapshot_id = s.snapshot_id, ordinal = 0, next_file_id = greatest(c.next_file_id, s.next_file_id)
FROM ducklake_snapshot s
WHERE s.snapshot_id = (SELECT min(n.snapshot_id) FROM ducklake_snapshot n WHERE n.snapshot_id > c.snapshot_id)
RETURNING s.snapshot_id;

-- begun_tables: tables that got these names at these snapshots. A schema goes by what DuckLake calls it or by its full
-- name, as the release says nowhere what `changes_made` calls one that is nested
SELECT n.ordinal, t.table_id
FROM unnest(%(at)s::bigint[], %(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS n (at, schema, name, ordinal)
JOIN duckicelake_schemas() s ON n.schema IN (s.recorded_name, s.schema_name)
JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = n.name AND t.begin_snapshot = n.at;

-- begun_views: views that got these names at these snapshots
SELECT n.ordinal, v.view_id
FROM unnest(%(at)s::bigint[], %(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS n (at, schema, name, ordinal)
JOIN duckicelake_schemas() s ON n.schema IN (s.recorded_name, s.schema_name)
JOIN ducklake_view v ON v.schema_id = s.schema_id AND v.view_name = n.name AND v.begin_snapshot = n.at;

-- begun_schemas: schemas that were created at these snapshots
SELECT n.ordinal, s.schema_id
FROM unnest(%(at)s::bigint[], %(names)s::text[]) WITH ORDINALITY AS n (at, name, ordinal)
JOIN duckicelake_schemas() s ON n.name IN (s.recorded_name, s.schema_name) AND s.begin_snapshot = n.at;

-- table_names: all names that tables ever had, and where Iceberg clients find them, in which format
SELECT t.table_id, t.table_uuid::text, t.begin_snapshot, t.end_snapshot, s.schema_name, t.table_name, d.location,
       d.format_version
FROM ducklake_table t JOIN duckicelake_schemas() s USING (schema_id) LEFT JOIN duckicelake_table d USING (table_id)
WHERE t.table_id = ANY(%(ids)s)
ORDER BY t.table_id, t.begin_snapshot;

-- view_names: all names that views ever had, and where Iceberg clients find them
SELECT v.view_id, v.view_uuid::text, v.begin_snapshot, v.end_snapshot, s.schema_name, v.view_name,
       d.metadata ->> 'location', NULL
FROM ducklake_view v JOIN duckicelake_schemas() s USING (schema_id) LEFT JOIN duckicelake_view d USING (view_id)
WHERE v.view_id = ANY(%(ids)s)
ORDER BY v.view_id, v.begin_snapshot;

-- schema_names: the names of schemas
SELECT schema_id, schema_uuid::text, begin_snapshot, end_snapshot, schema_name, NULL, NULL, NULL
FROM duckicelake_schemas() WHERE schema_id = ANY(%(ids)s);

-- last_names: what things whose rows are gone were called in the changelog's last entries of them, and where they are
SELECT i.id, last.uuid::text, -1, NULL, last.namespace, last.name, place.location, place.format_version
FROM unnest(%(ids)s::bigint[]) AS i (id)
LEFT JOIN (
    SELECT table_id, location, format_version FROM duckicelake_table
    UNION ALL
    SELECT view_id, metadata ->> 'location', NULL FROM duckicelake_view
) place (id, location, format_version) ON place.id = i.id
CROSS JOIN LATERAL (
    SELECT c.uuid, c.namespace, c.name FROM duckicelake_change c
    WHERE c.object_id = i.id ORDER BY c.snapshot_id DESC, c.ordinal DESC LIMIT 1
) last;

-- live_tables: the ids of tables by their names
SELECT n.ordinal, t.table_id
FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS n (schema, name, ordinal)
JOIN duckicelake_schemas() s ON s.schema_name = n.schema AND s.end_snapshot IS NULL
JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = n.name AND t.end_snapshot IS NULL;

-- live_views: the ids of views by their names
SELECT n.ordinal, v.view_id
FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS n (schema, name, ordinal)
JOIN duckicelake_schemas() s ON s.schema_name = n.schema AND s.end_snapshot IS NULL
JOIN ducklake_view v ON v.schema_id = s.schema_id AND v.view_name = n.name AND v.end_snapshot IS NULL;

-- live_schemas: the ids of schemas by their names
SELECT n.ordinal, s.schema_id
FROM unnest(%(schemas)s::text[]) WITH ORDINALITY AS n (name, ordinal)
JOIN duckicelake_schemas() s ON s.schema_name = n.name AND s.end_snapshot IS NULL;

-- last_places: where tables and views were in the changelog's last entries, and their format versions
SELECT i.id, last.facts ->> 'location', (last.facts ->> 'format-version')::integer
FROM unnest(%(ids)s::bigint[]) AS i (id)
CROSS JOIN LATERAL (
    SELECT c.facts FROM duckicelake_change c
    WHERE c.object_id = i.id AND c.facts ->> 'location' IS NOT NULL
    ORDER BY c.snapshot_id DESC, c.ordinal DESC LIMIT 1
) last;

-- new_files: by the snapshot that took their ids from the counter, which is at `bounds` after each: data files of a table
-- together, and each delete file in the order of their ids; old ones of those that only keep a file don't count
SELECT width_bucket(data_file_id, %(bounds)s::bigint[]), table_id, begin_snapshot, NULL, count(*),
       coalesce(sum(record_count), 0)::bigint, coalesce(sum(file_size_bytes), 0)::bigint, NULL AS number
FROM ducklake_data_file
WHERE data_file_id >= %(first)s AND data_file_id < %(upto)s
GROUP BY 1, 2, 3
UNION ALL
SELECT width_bucket(delete_file_id, %(bounds)s::bigint[]), table_id, begin_snapshot, data_file_id, 1,
       coalesce(delete_count, 0), 0, delete_file_id
FROM ducklake_delete_file
WHERE delete_file_id >= %(first)s AND delete_file_id < %(upto)s AND begin_snapshot < duckicelake_never()
ORDER BY number;

-- delete_file_begins: snapshots at which a table's delete files begin
SELECT n.at, n.table_id
FROM unnest(%(at)s::bigint[], %(table_ids)s::bigint[]) AS n (at, table_id)
WHERE EXISTS (SELECT FROM ducklake_delete_file d WHERE d.table_id = n.table_id AND d.begin_snapshot = n.at);

-- ended_files: data files that left tables at snapshots
SELECT n.at, n.table_id, d.data_file_id, coalesce(d.record_count, 0), coalesce(d.file_size_bytes, 0)
FROM unnest(%(at)s::bigint[], %(table_ids)s::bigint[]) AS n (at, table_id)
JOIN ducklake_data_file d ON d.table_id = n.table_id AND d.end_snapshot = n.at;

-- deleted_rows: what is known of deleted rows of data files
SELECT data_file_id, count FROM duckicelake_deleted_rows WHERE data_file_id = ANY(%(ids)s);

-- know_deleted_rows: remember them for the next time
INSERT INTO duckicelake_deleted_rows (data_file_id, count)
SELECT * FROM unnest(%(ids)s::bigint[], %(counts)s::bigint[])
ON CONFLICT (data_file_id) DO UPDATE SET count = excluded.count;

-- forget_lost_files: deleted rows of files that were merged or expired, which the changelog doesn't have
DELETE FROM duckicelake_deleted_rows r
WHERE NOT EXISTS (SELECT FROM ducklake_data_file d WHERE d.data_file_id = r.data_file_id);

-- forget_deleted_rows: of files that are gone
DELETE FROM duckicelake_deleted_rows WHERE data_file_id = ANY(%(ids)s);

-- inlined_tables: the tables in Postgres that hold rows of tables, and deletes of rows of their files
SELECT i.table_id, i.table_name, true
FROM ducklake_inlined_data_tables i
WHERE i.table_id = ANY(%(ids)s) AND to_regclass(quote_ident(i.table_name)) IS NOT NULL
UNION ALL
SELECT t.id, 'ducklake_inlined_delete_' || t.id, false
FROM unnest(%(ids)s::bigint[]) AS t (id)
WHERE to_regclass('ducklake_inlined_delete_' || t.id) IS NOT NULL;

-- write: add changes, note how far the changelog is, and notify its readers
WITH added AS (
    INSERT INTO duckicelake_change (snapshot_id, ordinal, at, kind, namespace, name, previous, object_id, uuid, source,
        principal, agent, request_id, operation, iceberg_snapshot_id, facts)
    SELECT * FROM json_to_recordset(%(changes)s::json) AS c (snapshot_id bigint, ordinal integer, at timestamptz,
        kind text, namespace text, name text, previous text, object_id bigint, uuid uuid, source text, principal text,
        agent text, request_id text, operation text, iceberg_snapshot_id bigint, facts json)
), moved AS (
    UPDATE duckicelake_chronicle
    SET snapshot_id = %(snapshot_id)s, ordinal = %(ordinal)s, next_file_id = %(next_file_id)s
)
SELECT pg_notify('duckicelake_change', %(snapshot_id)s::text);
