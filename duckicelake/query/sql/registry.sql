-- insert: note that a query begins, and forget those that ended long ago
WITH forgotten AS (DELETE FROM duckicelake_query WHERE seen < clock_timestamp() - interval '10 minutes')
INSERT INTO duckicelake_query (query_id, principal, principal_id, statement)
VALUES (%(query_id)s, %(principal)s, %(principal_id)s, %(statement)s)
ON CONFLICT (query_id) DO NOTHING
RETURNING true;

-- report: note how far a query is; returns whether it was cancelled
UPDATE duckicelake_query
SET state = %(state)s, progress = %(progress)s, rows = %(rows)s, seen = clock_timestamp()
WHERE query_id = %(query_id)s
RETURNING is_cancelled;

-- list_newest: queries, the newest first; of one principal unless `sees_all`, and only `query_id` if it is given
SELECT query_id, principal, statement,
    CASE WHEN state = 'running' AND seen < clock_timestamp() - interval '15 seconds' THEN 'lost' ELSE state END,
    progress, rows, started,
    extract(epoch FROM CASE WHEN state = 'running' THEN clock_timestamp() ELSE seen END - started)::float8
FROM duckicelake_query
WHERE (%(sees_all)s OR (principal = %(principal)s AND principal_id IS NOT DISTINCT FROM %(principal_id)s))
  AND (%(query_id)s::uuid IS NULL OR query_id = %(query_id)s)
ORDER BY started DESC, query_id
LIMIT 1000;

-- cancel: ask the process that runs a query to end it
UPDATE duckicelake_query SET is_cancelled = true
WHERE query_id = %(query_id)s
  AND (%(sees_all)s OR (principal = %(principal)s AND principal_id IS NOT DISTINCT FROM %(principal_id)s))
RETURNING true;
