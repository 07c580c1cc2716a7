-- inlined: the tables of rows and of deletes that DuckDB keeps in Postgres, if there is anything in them
SELECT i.table_id, i.table_name, true
FROM ducklake_inlined_data_tables i JOIN pg_class c ON c.oid = to_regclass(quote_ident(i.table_name))
WHERE i.table_id = ANY(%(table_ids)s) AND pg_relation_size(c.oid) > 0
UNION ALL
SELECT t.id, c.relname, false
FROM unnest(%(table_ids)s::bigint[]) AS t (id)
JOIN pg_class c ON c.oid = to_regclass('ducklake_inlined_delete_' || t.id)
WHERE pg_relation_size(c.oid) > 0;

-- tables: ids of live tables after one that may be seen, in a namespace and those below it, or of one name there, but for
-- those in nested schemas, which are maintained by DuckDB alone
SELECT t.table_id, s.schema_name
FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND t.table_id > %(after)s AND NOT s.is_nested
  AND (%(schema_name)s::text IS NULL OR s.schema_name = %(schema_name)s
       OR (%(table_name)s::text IS NULL AND duckicelake_is_within(s.schema_name, %(schema_name)s)))
  AND (%(table_name)s::text IS NULL OR t.table_name = %(table_name)s)
  AND (%(visible)s::text[] IS NULL OR EXISTS (
      SELECT FROM unnest(%(visible)s::text[]) AS v (namespace) WHERE duckicelake_is_within(s.schema_name, namespace))
      OR t.table_id = ANY(%(visible_ids)s))
ORDER BY t.table_id
LIMIT %(limit)s;

-- by_hash: join by hashes. Postgres doesn't know at first how many files a lake has that grows; loops over 5,000 files of
-- each of 5,000 would take seconds
SET LOCAL enable_nestloop = off;

-- statistics: all that decides how tables are to be maintained
WITH wanted AS MATERIALIZED (
    SELECT t.table_id, t.table_name, s.schema_id, s.schema_name
    FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
    WHERE t.end_snapshot IS NULL AND t.table_id = ANY(%(table_ids)s)
),
known AS MATERIALIZED (
    SELECT d.table_id, d.location, d.format_version, d.current_snapshot_id,
           m.properties::jsonb AS properties,
           ARRAY(SELECT (r.value ->> 'snapshot-id')::bigint FROM json_each(coalesce(m.refs, '{}')) r) AS named,
           coalesce(m.refs::jsonb, '{}') AS refs,
           ARRAY(SELECT (e.value ->> 'snapshot-id')::bigint
                 FROM json_array_elements(coalesce(m.statistics, '[]')) e) AS described
    FROM duckicelake_table d, json_to_record(d.metadata) AS m (properties json, refs json, statistics json)
    WHERE d.table_id = ANY(%(table_ids)s)
),
-- DuckLake's options are policies, too: the catalog's, then a schema's, then a table's
option AS (
    SELECT scope, scope_id, jsonb_object_agg(CASE key
               WHEN 'target_file_size' THEN 'write.target-file-size-bytes'
               WHEN 'auto_compact' THEN 'maintenance.compaction.enabled'
               WHEN 'rewrite_delete_threshold' THEN 'maintenance.compaction.delete-ratio'
               ELSE key END, value) AS policies
    FROM ducklake_metadata
    WHERE key IN ('target_file_size', 'auto_compact', 'rewrite_delete_threshold', 'expire_older_than',
                  'parquet_compression')
    GROUP BY scope, scope_id
),
inherited AS (
    SELECT w.schema_id, jsonb_object_agg(each.key, each.value ORDER BY cardinality(p.levels)) AS policies
    FROM (SELECT DISTINCT schema_id, schema_name FROM wanted) w
    JOIN duckicelake_schemas() p ON p.end_snapshot IS NULL AND duckicelake_is_within(w.schema_name, p.schema_name)
    JOIN duckicelake_namespace n ON n.schema_id = p.schema_id
    CROSS JOIN json_each_text(n.properties) each
    GROUP BY w.schema_id
),
ruled AS MATERIALIZED (
    SELECT w.*, k.location, k.format_version, k.current_snapshot_id, k.named, k.described, k.properties AS own, d.following,
           %(defaults)s::jsonb || (SELECT u.policies::jsonb FROM duckicelake_upkeep u) || coalesce(o.policies, '{}') || coalesce(os.policies, '{}')
           || coalesce(ot.policies, '{}')
              - CASE WHEN k.properties ? 'write.parquet.compression-codec' THEN 'parquet_compression' ELSE '' END
           || coalesce(i.policies, '{}') || coalesce(k.properties, '{}')
           || CASE WHEN d.following THEN '{"maintenance.enabled": "false", "ducklake.follows-delta": "true"}' ELSE '{}' END::jsonb AS policies,
           -- an order of a server's settings isn't: servers may differ, and would sort in turns
           ((SELECT u.policies::jsonb FROM duckicelake_upkeep u) || coalesce(i.policies, '{}') || coalesce(k.properties, '{}'))
              ? 'maintenance.sort.order' AS has_stored_order
    FROM wanted w
    LEFT JOIN duckicelake_delta_source d USING (table_id)
    LEFT JOIN known k USING (table_id)
    LEFT JOIN inherited i USING (schema_id)
    LEFT JOIN option o ON o.scope IS NULL
    LEFT JOIN option os ON os.scope = 'schema' AND os.scope_id = w.schema_id
    LEFT JOIN option ot ON ot.scope = 'table' AND ot.scope_id = w.table_id
),
sized AS MATERIALIZED (
    SELECT *, CASE WHEN policies ->> 'write.target-file-size-bytes' ~ '^[1-9][0-9]{0,14}$'
                   THEN (policies ->> 'write.target-file-size-bytes')::bigint ELSE 536870912 END AS target,
           CASE WHEN own::text LIKE '%%"write.parquet.bloom-filter-enabled.column.%%' THEN (
               SELECT coalesce(jsonb_agg(c.column_id), '[]') FROM ducklake_column c
               WHERE c.table_id = r.table_id AND c.end_snapshot IS NULL AND c.parent_column IS NULL
                 AND own ->> ('write.parquet.bloom-filter-enabled.column.' || c.column_name) ~* '^\s*true\s*$')
           ELSE '[]' END AS filter_columns
    FROM ruled r
),
-- jobs that did something to all files of these tables: by id, as names change; older servers noted names alone
done AS MATERIALIZED (
    SELECT w.schema_name, w.table_name, w.filter_columns, j.number, j.kind, j.started, j.parameters, j.counts, j.snapshot_ids
    FROM sized w JOIN duckicelake_job j ON j.table_id = w.table_id
    WHERE j.kind IN ('sort', 'bloom-filters', 'remove-orphans') AND j.result IN ('done', 'unchanged')
    UNION ALL
    SELECT w.schema_name, w.table_name, w.filter_columns, j.number, j.kind, j.started, j.parameters, j.counts, j.snapshot_ids
    FROM sized w JOIN duckicelake_job j USING (schema_name, table_name)
    WHERE j.table_id IS NULL
      AND j.kind IN ('sort', 'bloom-filters', 'remove-orphans') AND j.result IN ('done', 'unchanged')
),
-- the last jobs that left no file out of those before a snapshot; the files of their own snapshots are as they should be.
-- One for Bloom filters counts only if its columns hold all that the table asks for now, by id: names change
whole AS (
    SELECT DISTINCT ON (schema_name, table_name, kind) schema_name, table_name, kind,
           (counts ->> 'ducklake-snapshot')::bigint AS upto, snapshot_ids, parameters ->> 'order' AS sorted_by,
           CASE WHEN json_typeof(parameters -> 'order-keys') = 'array' THEN parameters -> 'order-keys' END AS order_keys
    FROM done
    WHERE (kind = 'sort' OR (kind = 'bloom-filters' AND (parameters -> 'column-ids')::jsonb @> filter_columns))
      AND counts ->> 'ducklake-snapshot' ~ '^[0-9]{1,18}$'
    ORDER BY schema_name, table_name, kind, number DESC
),
whole_snapshot AS (
    SELECT schema_name, table_name, kind, unnest(snapshot_ids) AS snapshot_id FROM whole
),
cleaned AS (
    SELECT schema_name, table_name, trunc(extract(epoch FROM max(started)) * 1000)::bigint AS cleaned_ms
    FROM done
    WHERE kind = 'remove-orphans'
    GROUP BY schema_name, table_name
),
noted AS (
    SELECT * FROM unnest(%(noted_files)s::bigint[], %(noted_deletes)s::bigint[]) AS n (data_file_id, deletes)
),
folder AS (
    SELECT data_file_id, string_agg(coalesce(partition_value, 'NULL'), chr(31) ORDER BY partition_key_index) AS part
    FROM ducklake_file_partition_value WHERE table_id = ANY(%(table_ids)s) GROUP BY data_file_id
),
file AS MATERIALIZED (
    SELECT f.table_id, f.file_size_bytes AS bytes, f.record_count,
           o.upto IS NULL OR (
               f.begin_snapshot > o.upto AND (s.schema_name, s.table_name, 'sort', coalesce(i.added_snapshot_id, -1))
                   NOT IN (SELECT schema_name, table_name, kind, snapshot_id FROM whole_snapshot)) AS is_unsorted,
           b.upto IS NULL OR (
               f.begin_snapshot > b.upto AND (s.schema_name, s.table_name, 'bloom-filters', coalesce(i.added_snapshot_id, -1))
                   NOT IN (SELECT schema_name, table_name, kind, snapshot_id FROM whole_snapshot)) AS is_unfiltered,
           f.file_size_bytes < s.target * 3 / 4 AS is_small, f.file_size_bytes <= s.target / 2 AS is_half,
           coalesce(d.delete_count, 0) + coalesce(n.deletes, 0) AS deleted,
           coalesce(i.spec_id || ':' || nullif(i.partition::text, '[]'), folder.part) AS part
    FROM sized s
    JOIN ducklake_data_file f ON f.table_id = s.table_id AND f.table_id = ANY(%(table_ids)s) AND f.end_snapshot IS NULL
         AND f.data_file_id <> ALL(%(left_out)s::bigint[])
    LEFT JOIN ducklake_delete_file d ON d.data_file_id = f.data_file_id AND d.end_snapshot IS NULL
         AND d.begin_snapshot < duckicelake_never()
    LEFT JOIN noted n ON n.data_file_id = f.data_file_id
    LEFT JOIN duckicelake_file i ON i.ducklake_id = f.data_file_id AND i.content = 0 AND i.table_id = f.table_id
         AND i.table_id = ANY(%(table_ids)s)
    LEFT JOIN folder ON folder.data_file_id = f.data_file_id
    LEFT JOIN whole o ON o.schema_name = s.schema_name AND o.table_name = s.table_name AND o.kind = 'sort'
    LEFT JOIN whole b ON b.schema_name = s.schema_name AND b.table_name = s.table_name AND b.kind = 'bloom-filters'
),
-- a partition's small files count by their number only where fewer files of the target size could hold them, and two of
-- them together have no more than that: two of a half each, or one of a quarter beside another
small AS (
    SELECT table_id, coalesce(jsonb_object_agg(files, parts) FILTER (WHERE parts > 0), '{}') AS by_part,
           sum(files * all_parts) AS files, sum(bytes) AS bytes
    FROM (SELECT p.table_id, p.files, count(*) AS all_parts, sum(p.bytes) AS bytes,
                 count(*) FILTER (WHERE p.files = 1 OR (p.files > ceil(p.bytes / s.target::numeric)
                                                        AND (p.halves > 1 OR p.smallest <= s.target / 4))) AS parts
          FROM (SELECT table_id, part, count(*) AS files, sum(bytes) AS bytes, min(bytes) AS smallest,
                       count(*) FILTER (WHERE is_half) AS halves
                FROM file WHERE is_small GROUP BY table_id, part) p
          JOIN sized s USING (table_id)
          GROUP BY p.table_id, p.files) c
    GROUP BY table_id
),
filed AS (
    SELECT table_id, count(*) AS files, sum(bytes) AS bytes, sum(record_count) AS records, sum(deleted) AS deleted,
           count(*) FILTER (WHERE deleted > 0) AS with_deletes,
           sum(bytes) FILTER (WHERE is_unsorted) AS unsorted, sum(bytes) FILTER (WHERE is_unfiltered) AS unfiltered,
           ARRAY[count(*) FILTER (WHERE share >= 0.1), count(*) FILTER (WHERE share >= 0.2),
                 count(*) FILTER (WHERE share >= 0.3), count(*) FILTER (WHERE share >= 0.4),
                 count(*) FILTER (WHERE share >= 0.5), count(*) FILTER (WHERE share >= 0.6),
                 count(*) FILTER (WHERE share >= 0.7), count(*) FILTER (WHERE share >= 0.8),
                 count(*) FILTER (WHERE share >= 0.9)] AS by_deleted_tenths
    FROM (SELECT *, deleted::float8 / greatest(record_count, 1) AS share FROM file) f
    GROUP BY table_id
),
history AS (
    SELECT k.table_id, h.*
    FROM known k CROSS JOIN LATERAL (
        SELECT count(*) AS snapshots,
               min(timestamp_ms) FILTER (WHERE snapshot_id <> ALL (k.named)) AS oldest_ms,
               max(timestamp_ms) FILTER (WHERE snapshot_id = k.current_snapshot_id) AS current_ms,
               max(timestamp_ms) FILTER (WHERE snapshot_id = ANY (k.described)) AS described_ms
        FROM duckicelake_snapshot WHERE table_id = k.table_id) h
),
-- when the first branch or tag is as old as it may be, and the shortest time for which a branch keeps its snapshots; few
-- tables have either
retained AS (
    SELECT r.table_id, min(r.branch_age_ms) AS branch_age_ms,
           min(least(r.made_ms + r.age_ms, 9e18)) FILTER (WHERE r.age_ms IS NOT NULL)::bigint AS refs_end_ms
    FROM (
        SELECT k.table_id, (e.value ->> 'max-snapshot-age-ms')::bigint AS branch_age_ms,
               CASE WHEN e.key <> 'main' THEN coalesce(
                   (e.value ->> 'max-ref-age-ms')::numeric,
                   CASE WHEN s.policies ->> 'history.expire.max-ref-age-ms' ~ '^\s*0*[1-9][0-9]{0,18}\s*$'
                        THEN (s.policies ->> 'history.expire.max-ref-age-ms')::numeric END) END AS age_ms,
               CASE WHEN e.key <> 'main' THEN (
                   SELECT h.timestamp_ms FROM duckicelake_snapshot h
                   WHERE h.table_id = k.table_id AND h.snapshot_id = (e.value ->> 'snapshot-id')::bigint) END AS made_ms
        FROM known k
        JOIN sized s USING (table_id)
        CROSS JOIN LATERAL jsonb_each(k.refs) e
        WHERE e.key <> 'main' OR e.value ? 'max-snapshot-age-ms') r
    GROUP BY r.table_id
),
-- the small manifests of a content and spec count if fewer can be made of them, as `bridge/manifest_lists.py` does. How
-- long they are is looked up only where the table says how long they may be
listed AS (
    SELECT k.table_id, l.*
    FROM (SELECT *, nullif(substring(properties ->> 'commit.manifest.target-size-bytes' FROM '^\s*([0-9]{1,18})\s*$')::numeric,
                           0) AS target FROM known) k
    CROSS JOIN LATERAL (
        SELECT sum(manifests)::bigint AS manifests, sum(files) FILTER (WHERE content = 1) AS delete_files,
               sum(small) FILTER (WHERE small > ceil(small_files / greatest(1, least(
                   10000, coalesce(floor(k.target * measured_files / nullif(small_bytes, 0)), 10000)))))::bigint AS small_manifests
        FROM (SELECT content, count(*) AS manifests, sum(files) AS files,
                     count(*) FILTER (WHERE is_small) AS small, sum(files) FILTER (WHERE is_small) AS small_files,
                     sum(files) FILTER (WHERE is_small AND length IS NOT NULL) AS measured_files,
                     sum(length) FILTER (WHERE is_small) AS small_bytes
              FROM (SELECT content, spec_id, files, length,
                           files < 1000 AND is_laid_out IS NOT TRUE AND coalesce(length < 0.75 * k.target, true) AS is_small
                    FROM (SELECT m.content, m.spec_id, m.is_laid_out, cardinality(m.added) + cardinality(m.existing) AS files,
                                 CASE WHEN k.target IS NOT NULL THEN (
                                     SELECT a.length FROM duckicelake_artifact a
                                     WHERE a.table_id = m.table_id AND a.kind = 'manifest' AND a.object_id = m.manifest_id
                                 ) END AS length
                          FROM duckicelake_manifest m
                          WHERE m.manifest_id = ANY (ARRAY(
                              SELECT unnest(h.manifest_ids) FROM duckicelake_snapshot h
                              WHERE h.table_id = k.table_id AND h.snapshot_id = k.current_snapshot_id))) m) m
              GROUP BY content, spec_id) g) l
),
-- tables with a column of single values, of which distinct ones are counted
counted AS (
    SELECT DISTINCT table_id FROM ducklake_column
    WHERE table_id = ANY(%(table_ids)s) AND end_snapshot IS NULL AND parent_column IS NULL
      AND column_type NOT IN ('struct', 'list', 'map', 'variant', 'geometry')
),
-- delete files from before a table had a format version with deletion vectors
outdated AS (
    SELECT k.table_id, count(*) AS files
    FROM known k
    JOIN duckicelake_snapshot h ON h.table_id = k.table_id AND h.snapshot_id = k.current_snapshot_id
    CROSS JOIN LATERAL unnest(h.manifest_ids) AS w (manifest_id)
    JOIN duckicelake_manifest m ON m.manifest_id = w.manifest_id AND m.content = 1
    CROSS JOIN LATERAL unnest(m.added || m.existing) AS e (file_id)
    JOIN duckicelake_file d ON d.file_id = e.file_id AND d.content = 1 AND lower(d.file_format) <> 'puffin'
    WHERE k.format_version >= 3
    GROUP BY k.table_id
)
SELECT s.table_id, s.schema_name, s.table_name, s.format_version, s.location, s.target,
       (SELECT coalesce(jsonb_object_agg(key, CASE WHEN key = 'gc.enabled' AND EXISTS (
                   SELECT FROM duckicelake_guard g WHERE g.table_id = s.table_id) THEN 'shared' ELSE value END), '{}')
        FROM jsonb_each_text(s.policies)
        WHERE starts_with(key, 'maintenance.') OR starts_with(key, 'history.expire.')
           OR (starts_with(key, 'write.parquet.bloom-filter-enabled.column.') AND s.own ? key)
           OR key IN ('gc.enabled', 'expire_older_than', 'parquet_compression', 'write.target-file-size-bytes')
           OR (key = 'ducklake.follows-delta' AND s.following)),
       coalesce(f.files, 0), coalesce(f.bytes, 0)::bigint, coalesce(f.records, 0)::bigint, coalesce(f.deleted, 0)::bigint,
       coalesce(f.with_deletes, 0), coalesce(l.delete_files, 0)::bigint, coalesce(f.unsorted, 0)::bigint,
       coalesce(f.unfiltered, 0)::bigint,
       CASE WHEN s.has_stored_order THEN coalesce(sorted.present, o.sorted_by) END,
       CASE WHEN s.policies ? 'maintenance.sort.order' THEN ARRAY(
           SELECT lower(c.column_name) FROM ducklake_column c
           WHERE c.table_id = s.table_id AND c.end_snapshot IS NULL AND c.parent_column IS NULL
             AND c.column_type NOT IN ('struct', 'list', 'map')
           ORDER BY c.column_order, c.column_id) END,
       coalesce(f.by_deleted_tenths, ARRAY[0,0,0,0,0,0,0,0,0]),
       coalesce(m.by_part, '{}'), coalesce(m.files, 0)::bigint, coalesce(m.bytes, 0)::bigint,
       coalesce(h.snapshots, 0), h.oldest_ms, r.refs_end_ms, r.branch_age_ms, h.current_ms, h.described_ms, c.cleaned_ms,
       coalesce(l.manifests, 0), coalesce(l.small_manifests, 0), coalesce(x.files, 0),
       n.table_id IS NOT NULL
FROM sized s
LEFT JOIN filed f USING (table_id)
LEFT JOIN small m USING (table_id)
LEFT JOIN history h USING (table_id)
LEFT JOIN retained r USING (table_id)
LEFT JOIN listed l USING (table_id)
LEFT JOIN counted n USING (table_id)
LEFT JOIN outdated x USING (table_id)
LEFT JOIN whole o ON o.schema_name = s.schema_name AND o.table_name = s.table_name AND o.kind = 'sort'
-- the order in the names that its columns have now
LEFT JOIN LATERAL (
    SELECT CASE WHEN starts_with(o.sorted_by, 'zorder(') THEN 'zorder(' || p.keys || ')' ELSE p.keys END AS present
    FROM (SELECT string_agg(coalesce(c.column_name, 'a dropped column') || coalesce(k.value ->> 'suffix', ''), ', '
                            ORDER BY k.place) AS keys
          FROM json_array_elements(o.order_keys) WITH ORDINALITY k (value, place)
          LEFT JOIN ducklake_column c ON c.table_id = s.table_id AND c.end_snapshot IS NULL AND c.parent_column IS NULL
               AND c.column_id::text = k.value ->> 'column-id') p) sorted ON true
LEFT JOIN cleaned c ON c.schema_name = s.schema_name AND c.table_name = s.table_name
ORDER BY s.table_id;

-- names: of live tables
SELECT t.table_id, s.schema_name, t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND t.table_id = ANY(%(table_ids)s)
ORDER BY t.table_id;

-- times: when DuckLake snapshots were made, in milliseconds since the epoch and ago, as far as they are there still
SELECT snapshot_id, trunc(extract(epoch FROM snapshot_time) * 1000)::bigint,
       trunc(extract(epoch FROM clock_timestamp() - snapshot_time) * 1000)::bigint
FROM ducklake_snapshot WHERE snapshot_id = ANY(%(snapshot_ids)s);

-- location: of a live table that an Iceberg client knows
SELECT d.location
FROM ducklake_table t
JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
JOIN duckicelake_table d ON d.table_id = t.table_id
WHERE t.end_snapshot IS NULL AND s.schema_name = %(schema_name)s AND t.table_name = %(table_name)s;

-- note_unreadable: that data files can't be read
INSERT INTO duckicelake_unreadable_file AS u (data_file_id, table_id, noted)
SELECT data_file_id, table_id, clock_timestamp() FROM ducklake_data_file
WHERE data_file_id = ANY (%(data_file_ids)s) AND end_snapshot IS NULL
ORDER BY data_file_id
ON CONFLICT (data_file_id) DO UPDATE SET noted = EXCLUDED.noted;

-- forget_unreadable: notes that hold no more
DELETE FROM duckicelake_unreadable_file WHERE noted < clock_timestamp() - %(days)s * interval '1 day';

-- unreadable: live files of some tables that were noted within some days, by table
SELECT u.table_id, array_agg(u.data_file_id ORDER BY u.data_file_id)
FROM duckicelake_unreadable_file u JOIN ducklake_data_file f USING (data_file_id)
WHERE u.table_id = ANY (%(table_ids)s) AND f.end_snapshot IS NULL
  AND u.noted > clock_timestamp() - %(days)s * interval '1 day'
GROUP BY u.table_id;
