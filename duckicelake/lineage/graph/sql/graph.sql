-- find: the dataset that a table's name means, at a time: who has it then, or now, or had it last
SELECT n.dataset_id FROM duckicelake_lineage_name n JOIN duckicelake_lineage_dataset d ON d.id = n.dataset_id
WHERE n.is_table AND n.name = %(name)s AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
  AND duckicelake_lineage_sees_name(n.name, %(granted)s::text[])
ORDER BY n.since <= %(at)s::timestamptz AND coalesce(n.until, 'infinity') > %(at)s::timestamptz DESC NULLS LAST,
         n.until DESC NULLS FIRST, n.since DESC
LIMIT 1;

-- find_named: the dataset of one of these names, of the first of them that there is
SELECT n.dataset_id FROM duckicelake_lineage_name n JOIN duckicelake_lineage_dataset d ON d.id = n.dataset_id
WHERE n.key = ANY (%(keys)s::uuid[]) AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY n.until DESC NULLS FIRST, array_position(%(keys)s::uuid[], n.key)
LIMIT 1;

-- datasets: by their ids, those that may be known
SELECT d.id, d.namespace, d.name, d.kind, d.schema_name, d.table_name, d.lifecycle, d.last_seen,
       d.facets -> 'schema' -> 'fields'
FROM duckicelake_lineage_dataset d
WHERE d.id = ANY (%(ids)s) AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY d.id;

-- search: datasets of which a name holds the text, those of the lake first
SELECT d.id, d.namespace, d.name, d.kind, d.schema_name, d.table_name, d.lifecycle, d.last_seen,
       d.facets -> 'schema' -> 'fields'
FROM duckicelake_lineage_dataset d
WHERE (strpos(lower(d.schema_name || '.' || d.table_name), lower(%(text)s)) > 0
       OR strpos(lower(d.namespace || '/' || d.name), lower(%(text)s)) > 0)
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY d.schema_name IS NULL, d.schema_name, d.table_name, d.name, d.id
LIMIT %(limit)s;

-- upstream: from where datasets come, as of a time
SELECT DISTINCT e.target, e.source
FROM duckicelake_lineage_edge e JOIN duckicelake_lineage_dataset d ON d.id = e.source
WHERE e.target = ANY (%(ids)s) AND e.source <> e.target
  AND CASE WHEN %(at)s::timestamptz IS NULL THEN e.until IS NULL
           ELSE e.first_seen <= %(at)s AND coalesce(e.until, 'infinity') > %(at)s END
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
LIMIT %(limit)s;

-- downstream: where datasets go, as of a time
SELECT DISTINCT e.source, e.target
FROM duckicelake_lineage_edge e JOIN duckicelake_lineage_dataset d ON d.id = e.target
WHERE e.source = ANY (%(ids)s) AND e.source <> e.target
  AND CASE WHEN %(at)s::timestamptz IS NULL THEN e.until IS NULL
           ELSE e.first_seen <= %(at)s AND coalesce(e.until, 'infinity') > %(at)s END
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
LIMIT %(limit)s;

-- upstream_columns: from which columns columns come, or what is in them or around them
SELECT DISTINCT f.id, f.field, c.source, c.source_field
FROM unnest(%(ids)s::bigint[], %(fields)s::text[]) AS f (id, field)
JOIN duckicelake_lineage_column c ON c.target = f.id
JOIN duckicelake_lineage_dataset d ON d.id = c.source
WHERE (c.target_field = '' OR c.target_field = f.field OR starts_with(c.target_field, f.field || '.')
       OR starts_with(f.field, c.target_field || '.'))
  AND CASE WHEN %(at)s::timestamptz IS NULL THEN c.until IS NULL
           ELSE c.first_seen <= %(at)s AND coalesce(c.until, 'infinity') > %(at)s END
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
LIMIT %(limit)s;

-- downstream_columns: where columns go; '' is any column
SELECT DISTINCT f.id, f.field, c.target, c.target_field
FROM unnest(%(ids)s::bigint[], %(fields)s::text[]) AS f (id, field)
JOIN duckicelake_lineage_column c ON c.source = f.id
JOIN duckicelake_lineage_dataset d ON d.id = c.target
WHERE (f.field = '' OR c.source_field = f.field OR starts_with(c.source_field, f.field || '.')
       OR starts_with(f.field, c.source_field || '.'))
  AND CASE WHEN %(at)s::timestamptz IS NULL THEN c.until IS NULL
           ELSE c.first_seen <= %(at)s AND coalesce(c.until, 'infinity') > %(at)s END
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
LIMIT %(limit)s;

-- edges: between some datasets, as of a time, each with its newest runs, which are sought among the job's newest
SELECT e.source, e.target, e.job_id, j.namespace,
       duckicelake_lineage_shown_job_name(j.id, j.name, j.origin, %(granted)s::text[]),
       j.facets -> 'jobType', e.first_seen, e.last_seen, e.confidence, runs.recent
FROM duckicelake_lineage_edge e
LEFT JOIN duckicelake_lineage_job j ON j.id = e.job_id
LEFT JOIN LATERAL (
    SELECT json_agg(newest) AS recent FROM (
        SELECT run.id, run.state, run.started, run.ended, run.facets -> 'processing_engine' AS engine,
               run.facets -> 'duckicelake_commit' AS commit, o.version, i.confidence
        FROM (SELECT * FROM duckicelake_lineage_io
              WHERE dataset_id = e.target AND is_output AND job_id = e.job_id
                AND at <= coalesce(%(at)s::timestamptz, 'infinity')
              ORDER BY at DESC LIMIT 100) AS o
        JOIN duckicelake_lineage_io i ON i.run_id = o.run_id AND i.dataset_id = e.source AND NOT i.is_output
        JOIN duckicelake_lineage_run run ON run.id = o.run_id
        ORDER BY o.at DESC LIMIT %(runs)s
    ) AS newest
) AS runs ON e.job_id > 0
WHERE e.source = ANY (%(ids)s) AND e.target = ANY (%(ids)s)
  AND CASE WHEN %(at)s::timestamptz IS NULL THEN e.until IS NULL
           ELSE e.first_seen <= %(at)s AND coalesce(e.until, 'infinity') > %(at)s END
ORDER BY e.target, e.source, e.job_id
LIMIT %(limit)s;

-- columns: between some datasets, as of a time
SELECT c.source, c.target, c.job_id, c.source_field, c.target_field, c.kind, c.subtype, c.description, c.is_masked,
       c.confidence
FROM duckicelake_lineage_column c
WHERE c.source = ANY (%(ids)s) AND c.target = ANY (%(ids)s)
  AND CASE WHEN %(at)s::timestamptz IS NULL THEN c.until IS NULL
           ELSE c.first_seen <= %(at)s AND coalesce(c.until, 'infinity') > %(at)s END
ORDER BY c.target, c.source, c.job_id, c.target_field, c.source_field, c.kind, c.subtype
LIMIT %(limit)s;

-- run: one, with its job, and whether what it said may be known
SELECT run.id, run.origin, run.state, run.started, run.ended, run.facets, j.namespace,
       duckicelake_lineage_shown_job_name(j.id, j.name, j.origin, %(granted)s::text[]), j.facets,
       duckicelake_lineage_sees_run(run.id, %(granted)s::text[])
FROM duckicelake_lineage_run run JOIN duckicelake_lineage_job j ON j.id = run.job_id
WHERE run.id = %(id)s;

-- io: what a run read and wrote, and whether that may be known
SELECT io.is_output, d.id, d.namespace, d.name, d.schema_name, d.table_name, io.version, io.lifecycle, io.confidence,
       duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
FROM duckicelake_lineage_io io JOIN duckicelake_lineage_dataset d ON d.id = io.dataset_id
WHERE io.run_id = %(id)s
ORDER BY io.is_output, d.schema_name, d.table_name, d.name;

-- events_of_run: as they came, but for those that others sent of a run that the catalog has recorded itself
SELECT event.body FROM duckicelake_lineage_event event JOIN duckicelake_lineage_run run ON run.id = event.run_id
WHERE event.run_id = %(id)s AND (event.origin <> 'received' OR run.origin = 'received')
ORDER BY event.at, event.id LIMIT %(limit)s;

-- events_of: those of runs and of definitions by which some datasets were written, of which all may be known
SELECT event.body FROM duckicelake_lineage_event event JOIN duckicelake_lineage_run run ON run.id = event.run_id
WHERE event.at <= coalesce(%(at)s::timestamptz, 'infinity') AND (event.origin <> 'received' OR run.origin = 'received')
  AND event.run_id IN (SELECT io.run_id FROM duckicelake_lineage_io io WHERE io.dataset_id = ANY (%(ids)s))
  AND duckicelake_lineage_sees_run(event.run_id, %(granted)s::text[])
ORDER BY event.id DESC
LIMIT %(limit)s;
