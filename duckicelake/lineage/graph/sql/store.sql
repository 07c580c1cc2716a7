-- lock: queue behind other recorders until the end of the transaction
SELECT pg_advisory_xact_lock(%(key)s # {schema_key});

-- is_over: whether a principal has sent more than so many events within the last hour
SELECT EXISTS (
    SELECT FROM duckicelake_lineage_event
    WHERE origin = 'received' AND principal = %(principal)s AND recorded > clock_timestamp() - interval '1 hour'
    OFFSET %(most)s);

-- add_events: those that aren't there yet
INSERT INTO duckicelake_lineage_event
    (at, origin, principal, run_id, job_namespace, job_name, event_type, digest, body)
SELECT at, %(origin)s, %(principal)s, run_id, job_namespace, job_name, event_type, digest, body
FROM json_to_recordset(%(rows)s::json) AS sent (at timestamptz, run_id uuid, job_namespace text, job_name text,
                                                event_type text, digest uuid, body json)
ON CONFLICT (digest) DO NOTHING
RETURNING id, digest;

-- beginnings: the START events of runs, which come before it is known that anything flows
SELECT id, body FROM duckicelake_lineage_event
WHERE run_id = ANY (%(run_ids)s) AND event_type = 'START' AND id <> ALL (%(new)s::bigint[])
ORDER BY at;

-- jobs: by their names
SELECT id, key, namespace, name, origin, first_seen, last_seen, facets
FROM duckicelake_lineage_job WHERE key = ANY (%(keys)s);

-- own_jobs: those of some jobs that the catalog itself has reported
SELECT namespace, name FROM duckicelake_lineage_job WHERE key = ANY (%(keys)s) AND origin <> 'received';

-- job_ids: for new jobs
SELECT nextval('duckicelake_lineage_job_id_seq') FROM generate_series(1, %(count)s);

-- save_jobs: new ones, and how the others have become
INSERT INTO duckicelake_lineage_job (id, key, namespace, name, origin, first_seen, last_seen, facets)
SELECT id, key, namespace, name, origin, first_seen, last_seen, facets
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (id bigint, key uuid, namespace text, name text, origin text,
                                                  first_seen timestamptz, last_seen timestamptz, facets jsonb)
ON CONFLICT (id) DO UPDATE
SET origin = excluded.origin, first_seen = excluded.first_seen, last_seen = excluded.last_seen, facets = excluded.facets;

-- runs: by their ids
SELECT id, job_id, origin, state, state_at, started, ended, last_seen, has_flown, facets
FROM duckicelake_lineage_run WHERE id = ANY (%(ids)s);

-- save_runs: new ones, and how the others have become
INSERT INTO duckicelake_lineage_run (id, job_id, origin, state, state_at, started, ended, last_seen, has_flown, facets)
SELECT id, job_id, origin, state, state_at, started, ended, last_seen, has_flown, facets
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (id uuid, job_id bigint, origin text, state text, state_at timestamptz,
    started timestamptz, ended timestamptz, last_seen timestamptz, has_flown boolean, facets jsonb)
ON CONFLICT (id) DO UPDATE
SET job_id = excluded.job_id, origin = excluded.origin, state = excluded.state, state_at = excluded.state_at, started = excluded.started,
    ended = excluded.ended, last_seen = excluded.last_seen, has_flown = excluded.has_flown, facets = excluded.facets;

-- names: all that the datasets have now of which one is asked for, or is a table's in whatever catalog
SELECT n.namespace, n.name, n.is_table, n.since, d.id, d.namespace, d.name, d.is_located, d.schema_name, d.table_name,
       d.kind, d.origin, d.first_seen, d.last_seen, d.lifecycle, d.lifecycle_at, d.facets, d.facet_times
FROM duckicelake_lineage_name n JOIN duckicelake_lineage_dataset d ON d.id = n.dataset_id
WHERE n.until IS NULL AND n.dataset_id IN (
    SELECT asked.dataset_id FROM duckicelake_lineage_name asked WHERE asked.key = ANY (%(keys)s) AND asked.until IS NULL
    UNION ALL
    SELECT asked.dataset_id FROM duckicelake_lineage_name asked
    WHERE asked.is_table AND asked.name = ANY (%(dotted)s) AND asked.until IS NULL);

-- dataset_ids: for new datasets
SELECT nextval('duckicelake_lineage_dataset_id_seq') FROM generate_series(1, %(count)s);

-- save_datasets: new ones, and how the others have become
INSERT INTO duckicelake_lineage_dataset (id, namespace, name, is_located, schema_name, table_name, kind, origin,
                                         first_seen, last_seen, lifecycle, lifecycle_at, facets, facet_times)
SELECT id, namespace, name, is_located, schema_name, table_name, kind, origin, first_seen, last_seen, lifecycle,
       lifecycle_at, facets, facet_times
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (id bigint, namespace text, name text, is_located boolean,
    schema_name text, table_name text, kind text, origin text, first_seen timestamptz, last_seen timestamptz,
    lifecycle text, lifecycle_at timestamptz, facets jsonb, facet_times jsonb)
ON CONFLICT (id) DO UPDATE
SET namespace = excluded.namespace, name = excluded.name, is_located = excluded.is_located,
    schema_name = excluded.schema_name, table_name = excluded.table_name, kind = excluded.kind,
    origin = excluded.origin, first_seen = excluded.first_seen, last_seen = excluded.last_seen,
    lifecycle = excluded.lifecycle, lifecycle_at = excluded.lifecycle_at, facets = excluded.facets,
    facet_times = excluded.facet_times;

-- end_names: names that datasets had until a time; some of them have come and gone at once
WITH sent AS (
    SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (key uuid, namespace text, name text, dataset_id bigint,
        is_table boolean, since timestamptz, until timestamptz)
), ended AS (
    UPDATE duckicelake_lineage_name n SET until = greatest(sent.until, n.since)
    FROM sent WHERE n.key = sent.key AND n.dataset_id = sent.dataset_id AND n.until IS NULL
    RETURNING n.key, n.dataset_id
)
INSERT INTO duckicelake_lineage_name (key, namespace, name, dataset_id, is_table, since, until)
SELECT key, namespace, name, dataset_id, is_table, since, until FROM sent
WHERE until > since AND (key, dataset_id) NOT IN (SELECT key, dataset_id FROM ended);

-- save_names: names that datasets have now
INSERT INTO duckicelake_lineage_name (key, namespace, name, dataset_id, is_table, since)
SELECT key, namespace, name, dataset_id, is_table, since
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (key uuid, namespace text, name text, dataset_id bigint,
                                                  is_table boolean, since timestamptz)
ON CONFLICT (key) WHERE until IS NULL DO UPDATE
SET dataset_id = excluded.dataset_id, is_table = excluded.is_table, since = excluded.since;

-- merge_io: give what runs did with one dataset to another
WITH moved AS (DELETE FROM duckicelake_lineage_io WHERE dataset_id = %(lost)s RETURNING *)
INSERT INTO duckicelake_lineage_io
SELECT run_id, %(kept)s, is_output, job_id, at, version, lifecycle, confidence, has_columns, event_id FROM moved
ON CONFLICT DO NOTHING;

-- merge_edges: give the edges of one dataset to another
WITH moved AS (
    DELETE FROM duckicelake_lineage_edge WHERE source = %(lost)s OR target = %(lost)s RETURNING *
)
INSERT INTO duckicelake_lineage_edge
SELECT CASE source WHEN %(lost)s THEN %(kept)s ELSE source END, CASE target WHEN %(lost)s THEN %(kept)s ELSE target END,
       job_id, first_seen, last_seen, until, confidence
FROM moved
ON CONFLICT DO NOTHING;

-- merge_columns: give the columns of one dataset to another
WITH moved AS (
    DELETE FROM duckicelake_lineage_column WHERE source = %(lost)s OR target = %(lost)s RETURNING *
)
INSERT INTO duckicelake_lineage_column (source, source_field, target, target_field, job_id, kind, subtype, description,
                                        is_masked, first_seen, last_seen, until, confidence)
SELECT CASE source WHEN %(lost)s THEN %(kept)s ELSE source END, source_field,
       CASE target WHEN %(lost)s THEN %(kept)s ELSE target END, target_field,
       job_id, kind, subtype, description, is_masked, first_seen, last_seen, until, confidence
FROM moved
ON CONFLICT DO NOTHING;

-- merge_job_io: give what jobs do with one dataset to another
WITH moved AS (DELETE FROM duckicelake_lineage_job_io WHERE dataset_id = %(lost)s RETURNING *)
INSERT INTO duckicelake_lineage_job_io SELECT job_id, %(kept)s, is_output, last_seen FROM moved
ON CONFLICT DO NOTHING;

-- merge_names: give the former names of one dataset to another
UPDATE duckicelake_lineage_name SET dataset_id = %(kept)s WHERE dataset_id = %(lost)s;

-- merge_dataset: forget one whose all went to another
DELETE FROM duckicelake_lineage_dataset WHERE id = %(lost)s;

-- save_io: what runs read and wrote, as far as it is known by now
INSERT INTO duckicelake_lineage_io AS known
    (run_id, dataset_id, is_output, job_id, at, version, lifecycle, confidence, has_columns, event_id)
SELECT run_id, dataset_id, is_output, job_id, at, version, lifecycle, confidence, has_columns, event_id
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (run_id uuid, dataset_id bigint, is_output boolean, job_id bigint,
    at timestamptz, version text, lifecycle text, confidence real, has_columns boolean, event_id bigint)
ON CONFLICT (run_id, dataset_id, is_output) DO UPDATE
SET at = greatest(known.at, excluded.at),
    version = CASE WHEN excluded.at >= known.at THEN coalesce(excluded.version, known.version)
                   ELSE coalesce(known.version, excluded.version) END,
    lifecycle = CASE WHEN excluded.at >= known.at THEN coalesce(excluded.lifecycle, known.lifecycle)
                     ELSE coalesce(known.lifecycle, excluded.lifecycle) END,
    confidence = CASE WHEN known.confidence IS NOT NULL AND excluded.confidence IS NOT NULL
                      THEN greatest(known.confidence, excluded.confidence) END,
    has_columns = known.has_columns OR excluded.has_columns,
    event_id = CASE WHEN excluded.at >= known.at THEN excluded.event_id ELSE known.event_id END;

-- save_job_io: what jobs read and write
INSERT INTO duckicelake_lineage_job_io AS known (job_id, dataset_id, is_output, last_seen)
SELECT job_id, dataset_id, is_output, max(at)
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (job_id bigint, dataset_id bigint, is_output boolean, at timestamptz)
GROUP BY job_id, dataset_id, is_output
ON CONFLICT (job_id, dataset_id, is_output) DO UPDATE SET last_seen = greatest(known.last_seen, excluded.last_seen);

-- save_edges: from each input to each output of runs by which something flows, but for outputs of several that say by
-- their columns what they are from, and of runs with too many of both; and those that events give one by one. What was given
-- beats what was inferred
INSERT INTO duckicelake_lineage_edge AS known (source, target, job_id, first_seen, last_seen, confidence)
SELECT source, target, job_id, min(since), max(at), CASE WHEN count(confidence) = count(*) THEN max(confidence) END
FROM (
    SELECT i.dataset_id AS source, o.dataset_id AS target, o.job_id, run.started AS since, run.last_seen AS at,
           i.confidence
    FROM unnest(%(runs)s::uuid[]) AS one (run_id)
    JOIN duckicelake_lineage_run run ON run.id = one.run_id
    JOIN LATERAL (
        SELECT count(*) FILTER (WHERE is_output) * count(*) FILTER (WHERE NOT is_output) AS edges
        FROM duckicelake_lineage_io WHERE run_id = one.run_id
    ) AS size ON size.edges <= %(most)s
    JOIN duckicelake_lineage_io o ON o.run_id = one.run_id AND o.is_output
    JOIN duckicelake_lineage_io i ON i.run_id = one.run_id AND NOT i.is_output
    WHERE (NOT o.has_columns OR NOT EXISTS (
        SELECT FROM duckicelake_lineage_io other
        WHERE other.run_id = o.run_id AND other.is_output AND other.dataset_id <> o.dataset_id))
    UNION ALL
    SELECT source, target, job_id, at, at, confidence
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (source bigint, target bigint, job_id bigint, at timestamptz,
                                                      confidence real)
) AS found
GROUP BY source, target, job_id
ON CONFLICT (target, source, job_id) DO UPDATE
SET first_seen = least(known.first_seen, excluded.first_seen), last_seen = greatest(known.last_seen, excluded.last_seen),
    until = CASE WHEN known.until > excluded.last_seen THEN known.until END,
    confidence = CASE WHEN known.confidence IS NOT NULL AND excluded.confidence IS NOT NULL
                      THEN greatest(known.confidence, excluded.confidence) END;

-- save_columns: from which fields fields come
INSERT INTO duckicelake_lineage_column AS known (source, source_field, target, target_field, job_id, kind, subtype,
                                                 description, is_masked, first_seen, last_seen, confidence)
SELECT source, source_field, target, target_field, job_id, kind, subtype,
       (array_agg(description ORDER BY at DESC))[1], bool_or(is_masked), min(at), max(at),
       CASE WHEN count(confidence) = count(*) THEN max(confidence) END
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (source bigint, source_field text, target bigint, target_field text,
    job_id bigint, kind text, subtype text, description text, is_masked boolean, at timestamptz, confidence real)
GROUP BY source, source_field, target, target_field, job_id, kind, subtype
ON CONFLICT (key) DO UPDATE
SET description = CASE WHEN excluded.last_seen >= known.last_seen THEN excluded.description ELSE known.description END,
    is_masked = known.is_masked OR excluded.is_masked,
    first_seen = least(known.first_seen, excluded.first_seen), last_seen = greatest(known.last_seen, excluded.last_seen),
    until = CASE WHEN known.until > excluded.last_seen THEN known.until END,
    confidence = CASE WHEN known.confidence IS NOT NULL AND excluded.confidence IS NOT NULL
                      THEN greatest(known.confidence, excluded.confidence) END;

-- end_columns: those that newer definitions of their targets leave out
UPDATE duckicelake_lineage_column c SET until = sent.at
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (target bigint, job_id bigint, at timestamptz)
WHERE c.target = sent.target AND c.job_id = sent.job_id AND c.last_seen < sent.at AND c.until IS NULL;

-- end_edges: those that newer definitions of their targets leave out
UPDATE duckicelake_lineage_edge e SET until = sent.at
FROM jsonb_to_recordset(%(rows)s::jsonb) AS sent (target bigint, job_id bigint, at timestamptz)
WHERE e.target = sent.target AND e.job_id = sent.job_id AND e.last_seen < sent.at AND e.until IS NULL;
