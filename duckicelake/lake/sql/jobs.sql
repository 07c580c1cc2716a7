-- give_up: end the job that holds a lease on a table and hasn't renewed it in time
UPDATE duckicelake_job
SET ended = lease_until, result = 'lost', message = 'it did not renew its lease in time, and another job took over'
WHERE schema_name = %(schema_name)s AND table_name = %(table_name)s AND lease = %(lease)s
  AND id <> %(id)s AND ended IS NULL AND lease_until < clock_timestamp();

-- begin: add a job, unless it is there or its lease is taken
INSERT INTO duckicelake_job (id, kind, schema_name, table_name, run_id, lease, principal, engine, parameters, lease_until,
    table_id)
VALUES (%(id)s, %(kind)s, %(schema_name)s, %(table_name)s, %(run_id)s, %(lease)s, %(principal)s, %(engine)s,
        %(parameters)s, clock_timestamp() + %(seconds)s * interval '1 second',
        (SELECT t.table_id
         FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
         WHERE t.end_snapshot IS NULL AND (s.schema_name, t.table_name) = (%(schema_name)s, %(table_name)s)))
ON CONFLICT DO NOTHING;

-- inputs: what a job of a principal's says that it reads; nothing if there is none
SELECT parameters -> 'inputs' FROM duckicelake_job
WHERE id::text = %(id)s AND principal = %(principal)s AND json_typeof(parameters -> 'inputs') = 'array';

-- holder: who has a lease on a table, until when
SELECT id, kind, principal, engine, lease_until FROM duckicelake_job
WHERE schema_name = %(schema_name)s AND table_name = %(table_name)s AND lease = %(lease)s AND ended IS NULL;

-- renew: say that a job goes on, and how far it is
UPDATE duckicelake_job
SET lease_until = clock_timestamp() + %(seconds)s * interval '1 second', counts = %(counts)s
WHERE id = %(id)s AND ended IS NULL;

-- end: say what came of a job that runs
UPDATE duckicelake_job
SET ended = clock_timestamp(), result = %(result)s, message = %(message)s, snapshot_ids = %(snapshot_ids)s,
    counts = %(counts)s,
    parameters = CASE WHEN %(added_parameters)s = '{}' THEN parameters
                      ELSE (parameters::jsonb || %(added_parameters)s::jsonb)::json END
WHERE id = %(id)s AND ended IS NULL;

-- thin: of the successful jobs of a job's table and kind, keep some of the newest; of those that did nothing the last one
-- alone, if so asked, as its end may be sent again
WITH own AS MATERIALIZED (
    SELECT number, result, row_number() OVER (ORDER BY number DESC) AS place,
           row_number() OVER (PARTITION BY result ORDER BY number DESC) AS place_of_result
    FROM duckicelake_job
    WHERE table_id = (SELECT table_id FROM duckicelake_job WHERE id = %(id)s)
      AND kind IN ('refresh', 'follow-delta') AND kind = %(kind)s AND result IN ('done', 'unchanged')
)
DELETE FROM duckicelake_job
WHERE number IN (
    SELECT number FROM own
    WHERE CASE WHEN %(keeps_unchanged)s THEN place > %(kept)s
               WHEN result = 'done' THEN place_of_result > %(kept)s
               ELSE place_of_result > 1 END);

-- job: one, if it is this principal's and of this table
SELECT number, id, kind, schema_name, table_name, run_id, lease, principal, engine, parameters, started, lease_until, ended,
       coalesce(result, CASE WHEN lease_until < clock_timestamp() THEN 'lost' ELSE 'running' END),
       message, snapshot_ids, counts
FROM duckicelake_job
WHERE id = %(id)s AND schema_name = %(schema_name)s AND table_name = %(table_name)s AND principal = %(principal)s;

-- jobs: those asked for that may be seen, newest first
SELECT number, id, kind, schema_name, table_name, run_id, lease, principal, engine, parameters, started, lease_until, ended,
       result, message, snapshot_ids, counts
FROM (
    SELECT number, id, kind, schema_name, table_name, run_id, lease, principal, engine, parameters, started, lease_until,
           ended, coalesce(result, CASE WHEN lease_until < clock_timestamp() THEN 'lost' ELSE 'running' END) AS result,
           message, snapshot_ids, counts
    FROM duckicelake_job
) AS sent
WHERE (%(before)s::bigint IS NULL OR number < %(before)s)
  AND (%(schema_name)s::text IS NULL OR schema_name = %(schema_name)s)
  AND (%(table_name)s::text IS NULL OR table_name = %(table_name)s)
  AND (%(kind)s::text IS NULL OR kind = %(kind)s)
  AND (%(run_id)s::text IS NULL OR run_id = %(run_id)s)
  AND (%(result)s::text IS NULL OR result = %(result)s)
  AND (%(visible)s::text[] IS NULL OR EXISTS (
      SELECT FROM unnest(%(visible)s::text[]) AS v (namespace) WHERE duckicelake_is_within(schema_name, namespace))
      OR (schema_name, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(tables)s::text[])))
ORDER BY number DESC
LIMIT %(limit)s;

-- forget: some of the oldest, if they began before a time and don't run any more
DELETE FROM duckicelake_job WHERE number IN (
    SELECT number
    FROM (SELECT number, started, coalesce(ended, lease_until) AS over FROM duckicelake_job ORDER BY number LIMIT 100) AS oldest
    WHERE started < clock_timestamp() - interval '90 days' AND over < clock_timestamp()
);
