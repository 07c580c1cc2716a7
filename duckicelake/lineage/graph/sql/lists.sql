-- namespaces: of datasets and of jobs
SELECT namespace, min(first_seen), max(last_seen)
FROM (
    SELECT d.shown_namespace AS namespace, d.first_seen, d.last_seen FROM duckicelake_lineage_shown d
    WHERE duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
    UNION ALL
    SELECT j.namespace, j.first_seen, j.last_seen FROM duckicelake_lineage_job j
    WHERE duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
) AS named
GROUP BY namespace ORDER BY namespace COLLATE "C"
LIMIT %(limit)s OFFSET %(offset)s;

-- datasets: of a namespace, or with any of some ids, with how many there are in all
SELECT d.id, d.shown_namespace, d.shown_name, d.namespace, d.name, d.kind, d.first_seen, d.last_seen, d.lifecycle,
       d.facets, count(*) OVER ()
FROM duckicelake_lineage_shown d
WHERE (%(namespace)s::text IS NULL OR d.shown_namespace = %(namespace)s)
  AND (%(ids)s::bigint[] IS NULL OR d.id = ANY (%(ids)s))
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY d.shown_name COLLATE "C", d.id
LIMIT %(limit)s OFFSET %(offset)s;

-- find_dataset: by any of its names, of some the first that there is
SELECT d.id FROM duckicelake_lineage_name n JOIN duckicelake_lineage_dataset d ON d.id = n.dataset_id
WHERE n.key = ANY (%(keys)s::uuid[]) AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY array_position(%(keys)s::uuid[], n.key), n.until DESC NULLS FIRST
LIMIT 1;

-- find_job: of some names the first that there is
SELECT j.id FROM duckicelake_lineage_job j
WHERE j.key = ANY (%(keys)s::uuid[]) AND duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
ORDER BY array_position(%(keys)s::uuid[], j.key)
LIMIT 1;

-- find_masked_job: the name of the job whose name the reader sees as this one
SELECT j.namespace, j.name FROM duckicelake_lineage_job j
WHERE j.namespace = %(namespace)s AND j.origin = 'catalog' AND right(j.name, 9) = right(%(name)s::text, 9)
  AND duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
  AND duckicelake_lineage_shown_job_name(j.id, j.name, j.origin, %(granted)s::text[]) = %(name)s
ORDER BY j.last_seen DESC
LIMIT 1;

-- jobs: of a namespace, or with any of some ids, or by a name, with their newest runs and how many there are in all
SELECT j.id, j.namespace, duckicelake_lineage_shown_job_name(j.id, j.name, j.origin, %(granted)s::text[]),
       j.first_seen, j.last_seen,
       CASE WHEN duckicelake_lineage_sees_all_of_job(j.id, %(granted)s::text[]) THEN j.facets ELSE '{}'::jsonb END,
       r.id, count(*) OVER ()
FROM duckicelake_lineage_job j
LEFT JOIN LATERAL (
    SELECT run.id, run.state FROM duckicelake_lineage_run run WHERE run.job_id = j.id ORDER BY run.started DESC LIMIT 1
) AS r ON true
WHERE (%(namespace)s::text IS NULL OR j.namespace = %(namespace)s)
  AND (%(ids)s::bigint[] IS NULL OR j.id = ANY (%(ids)s))
  AND (%(key)s::uuid IS NULL OR j.key = %(key)s)
  AND (%(states)s::text[] IS NULL OR r.state = ANY (%(states)s))
  AND duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
ORDER BY j.last_seen DESC, j.id
LIMIT %(limit)s OFFSET %(offset)s;

-- job_io: what jobs read and write
SELECT io.job_id, io.is_output, io.dataset_id, d.shown_namespace, d.shown_name
FROM duckicelake_lineage_job_io io JOIN duckicelake_lineage_shown d ON d.id = io.dataset_id
WHERE io.job_id = ANY (%(job_ids)s) AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY io.job_id, io.is_output, d.shown_name;

-- io_of_datasets: which jobs read and write datasets
SELECT io.dataset_id, io.is_output, io.job_id
FROM duckicelake_lineage_job_io io
WHERE io.dataset_id = ANY (%(dataset_ids)s) AND duckicelake_lineage_sees_job(io.job_id, %(granted)s::text[])
LIMIT %(limit)s;

-- runs: of a job, or with any of some ids, newest first, with how many there are in all
SELECT run.id, run.state, run.started, run.ended, run.last_seen,
       CASE WHEN duckicelake_lineage_sees_run(run.id, %(granted)s::text[]) THEN run.facets ELSE '{}'::jsonb END,
       j.namespace, duckicelake_lineage_shown_job_name(j.id, j.name, j.origin, %(granted)s::text[]),
       CASE WHEN duckicelake_lineage_sees_all_of_job(j.id, %(granted)s::text[]) THEN j.facets ELSE '{}'::jsonb END,
       count(*) OVER ()
FROM duckicelake_lineage_run run JOIN duckicelake_lineage_job j ON j.id = run.job_id
WHERE (%(key)s::uuid IS NULL OR j.key = %(key)s)
  AND (%(ids)s::uuid[] IS NULL OR run.id = ANY (%(ids)s))
  AND duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
  AND (%(granted)s::text[] IS NULL OR EXISTS (
    SELECT FROM duckicelake_lineage_io io JOIN duckicelake_lineage_dataset d ON d.id = io.dataset_id
    WHERE io.run_id = run.id AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])))
ORDER BY run.started DESC, run.id
LIMIT %(limit)s OFFSET %(offset)s;

-- versions: that runs made of a dataset, newest first, with what they said of it and how many there are in all
SELECT io.run_id, io.at, io.version, io.lifecycle,
       CASE WHEN duckicelake_lineage_sees_run(io.run_id, %(granted)s::text[]) THEN event.body -> 'outputs' END,
       count(*) OVER ()
FROM duckicelake_lineage_io io LEFT JOIN duckicelake_lineage_event event ON event.id = io.event_id
WHERE io.dataset_id = %(dataset_id)s AND io.is_output
ORDER BY io.at DESC, io.run_id
LIMIT %(limit)s OFFSET %(offset)s;

-- names_of: of a dataset, all that it ever had
SELECT namespace, name FROM duckicelake_lineage_name WHERE dataset_id = %(dataset_id)s;

-- columns_to: of which fields the fields of datasets are made
SELECT c.target, c.target_field, d.shown_namespace, d.shown_name, c.source, c.source_field, c.kind, c.subtype,
       c.description
FROM duckicelake_lineage_column c JOIN duckicelake_lineage_shown d ON d.id = c.source
WHERE c.target = ANY (%(ids)s) AND c.until IS NULL
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
ORDER BY c.target, c.target_field, d.shown_name, c.source_field
LIMIT %(limit)s;

-- events: between two times, of which all may be known; the newest first. For who may not know of every one, only so many
-- are examined
SELECT event.body FROM (
    SELECT event.id, event.at, event.run_id, event.body FROM duckicelake_lineage_event event
    WHERE event.at >= %(after)s AND event.at < %(before)s
    ORDER BY event.at DESC, event.id DESC
    LIMIT CASE WHEN %(granted)s::text[] IS NOT NULL THEN %(examined)s::bigint END
) AS event
WHERE %(granted)s::text[] IS NULL OR duckicelake_lineage_sees_run(event.run_id, %(granted)s::text[])
ORDER BY event.at DESC, event.id DESC
LIMIT %(limit)s OFFSET %(offset)s;

-- earliest_events: the same, the oldest first
SELECT event.body FROM (
    SELECT event.id, event.at, event.run_id, event.body FROM duckicelake_lineage_event event
    WHERE event.at >= %(after)s AND event.at < %(before)s
    ORDER BY event.at, event.id
    LIMIT CASE WHEN %(granted)s::text[] IS NOT NULL THEN %(examined)s::bigint END
) AS event
WHERE %(granted)s::text[] IS NULL OR duckicelake_lineage_sees_run(event.run_id, %(granted)s::text[])
ORDER BY event.at, event.id
LIMIT %(limit)s OFFSET %(offset)s;

-- count_events: how many there are, as far as it is worth to count them
SELECT count(*) FROM (
    SELECT FROM (
        SELECT event.run_id FROM duckicelake_lineage_event event
        WHERE event.at >= %(after)s AND event.at < %(before)s
        ORDER BY event.at DESC, event.id DESC
        LIMIT CASE WHEN %(granted)s::text[] IS NOT NULL THEN %(examined)s::bigint END
    ) AS event
    WHERE %(granted)s::text[] IS NULL OR duckicelake_lineage_sees_run(event.run_id, %(granted)s::text[])
    LIMIT %(limit)s
) AS counted;

-- search: datasets and jobs of which a name is like a pattern
SELECT kind, namespace, name, last_seen FROM (
    SELECT 'DATASET' AS kind, d.shown_namespace AS namespace, d.shown_name AS name, d.last_seen
    FROM duckicelake_lineage_shown d
    WHERE (d.shown_name ILIKE %(pattern)s OR d.name ILIKE %(pattern)s) AND %(filter)s IN ('ALL', 'DATASET')
      AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
    UNION ALL
    SELECT 'JOB', j.namespace, shown.name, j.last_seen FROM duckicelake_lineage_job j
    CROSS JOIN LATERAL (
        SELECT duckicelake_lineage_shown_job_name(j.id, j.name, j.origin, %(granted)s::text[]) AS name
    ) AS shown
    WHERE shown.name ILIKE %(pattern)s AND %(filter)s IN ('ALL', 'JOB')
      AND duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
) AS found
ORDER BY CASE WHEN %(by_time)s THEN last_seen END DESC, name COLLATE "C", namespace COLLATE "C"
LIMIT %(limit)s;

-- count_by_type: how many events of each type there were in each of some intervals
SELECT i.since, i.since + %(step)s::interval, event.event_type, count(event.id)
FROM generate_series(%(since)s::timestamptz, %(until)s::timestamptz, %(step)s::interval) AS i (since)
LEFT JOIN duckicelake_lineage_event event ON event.at >= i.since AND event.at < i.since + %(step)s::interval
  AND (%(granted)s::text[] IS NULL OR duckicelake_lineage_sees_run(event.run_id, %(granted)s::text[]))
GROUP BY i.since, event.event_type ORDER BY i.since;

-- count_jobs: how many jobs there were at the end of each of some intervals
SELECT i.since, i.since + %(step)s::interval, count(j.id)
FROM generate_series(%(since)s::timestamptz, %(until)s::timestamptz, %(step)s::interval) AS i (since)
LEFT JOIN duckicelake_lineage_job j ON j.first_seen < i.since + %(step)s::interval
  AND duckicelake_lineage_sees_job(j.id, %(granted)s::text[])
GROUP BY i.since ORDER BY i.since;

-- count_datasets: how many datasets there were at the end of each of some intervals
SELECT i.since, i.since + %(step)s::interval, count(d.id)
FROM generate_series(%(since)s::timestamptz, %(until)s::timestamptz, %(step)s::interval) AS i (since)
LEFT JOIN duckicelake_lineage_dataset d ON d.first_seen < i.since + %(step)s::interval
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
GROUP BY i.since ORDER BY i.since;

-- count_sources: of how many namespaces there were datasets at the end of each of some intervals
SELECT i.since, i.since + %(step)s::interval, count(DISTINCT d.namespace)
FROM generate_series(%(since)s::timestamptz, %(until)s::timestamptz, %(step)s::interval) AS i (since)
LEFT JOIN duckicelake_lineage_dataset d ON d.first_seen < i.since + %(step)s::interval
  AND duckicelake_lineage_sees(d.id, d.schema_name, %(granted)s::text[])
GROUP BY i.since ORDER BY i.since;
