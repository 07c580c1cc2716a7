-- watch: the lake's policies; whether a plan is due, and whether there may be a task to take
SELECT u.policies,
       coalesce(u.planned > clock_timestamp(), false)  -- the clock was set back
           OR u.next_plan <= clock_timestamp()
           AND (u.snapshot IS DISTINCT FROM (SELECT max(snapshot_id) FROM ducklake_snapshot)
                OR u.planned < clock_timestamp() - interval '10 minutes'),
       EXISTS (SELECT FROM duckicelake_upkeep_task t
               WHERE (t.state IN ('queued', 'waiting') AND t.available <= clock_timestamp())
                  OR (t.state = 'running' AND t.lease_until < clock_timestamp()))
FROM duckicelake_upkeep u;

-- take_plan: leave the next plan to this process, if it is due; milliseconds since the epoch, and the newest snapshot
UPDATE duckicelake_upkeep
SET next_plan = clock_timestamp() + %(seconds)s * interval '1 second', planned = least(planned, clock_timestamp())
WHERE next_plan <= clock_timestamp() OR planned > clock_timestamp() OR %(is_forced)s
RETURNING trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint, (SELECT max(snapshot_id) FROM ducklake_snapshot);

-- note_plan: how the plan went
UPDATE duckicelake_upkeep
SET planned = clock_timestamp(), snapshot = %(snapshot)s,
    next_plan = clock_timestamp() + %(seconds)s * interval '1 second';

-- take_look: leave the next look at what a feature wants done to this process, if it is due. One that is further away than
-- it can be is due too: the clock was set back, or the setting was greater
INSERT INTO duckicelake_upkeep_look AS l (setting, next_look)
VALUES (%(setting)s, clock_timestamp() + %(seconds)s * interval '1 second')
ON CONFLICT (setting) DO UPDATE SET next_look = EXCLUDED.next_look
WHERE l.next_look <= clock_timestamp() OR l.next_look > EXCLUDED.next_look
RETURNING next_look;

-- end_look: say when the next one is due, unless another process has taken it since, as this one was slow
UPDATE duckicelake_upkeep_look SET next_look = clock_timestamp() + %(seconds)s * interval '1 second'
WHERE setting = %(setting)s AND next_look = %(until)s;

-- note_presence: that a process looks for tasks by these settings, unless one has noted that just now. A time to come is
-- one of before the clock was set back
INSERT INTO duckicelake_upkeep_presence AS p (setting, noted)
SELECT setting, clock_timestamp() FROM unnest(%(settings)s::text[]) AS s (setting) ORDER BY setting
ON CONFLICT (setting) DO UPDATE SET noted = EXCLUDED.noted
WHERE p.noted < EXCLUDED.noted - %(seconds)s * interval '1 second' OR p.noted > EXCLUDED.noted;

-- presence: the settings by which processes look for tasks
SELECT setting FROM duckicelake_upkeep_presence WHERE noted > clock_timestamp() - %(seconds)s * interval '1 second';

-- policies: of the whole lake
SELECT policies FROM duckicelake_upkeep;

-- set_policies: and plan at once
UPDATE duckicelake_upkeep SET policies = %(policies)s, next_plan = clock_timestamp(), snapshot = NULL;

-- enqueue: put due tasks into the queue; what ended is due again once the table has changed, or a day later, but not
-- before it is available. A plan leaves a task of a part of a table as it was asked for, and what waits or is blocked as it
-- is if nothing differs. Where other policies hold by now, none waits. A request leaves what was asked for with another
-- condition, and what runs. Returned: what is in the queue as it was given, and whether a worker may take it now and could
-- not before
INSERT INTO duckicelake_upkeep_task AS t
    (table_id, kind, state, why, message, estimate, rank, digest, policies, target_size, condition, requested_by)
SELECT n.table_id, n.kind, CASE WHEN n.problem IS NULL THEN 'queued' ELSE 'blocked' END, n.why, n.problem, n.estimate::json,
       n.rank, n.digest, n.policies::json, n.target_size, n.condition, %(requested_by)s
FROM unnest(%(table_ids)s::bigint[], %(kinds)s::text[], %(whys)s::text[], %(problems)s::text[], %(estimates)s::text[],
            %(ranks)s::float8[], %(digests)s::text[], %(policies)s::text[], %(target_sizes)s::bigint[],
            %(conditions)s::text[])
     AS n (table_id, kind, why, problem, estimate, rank, digest, policies, target_size, condition)
ORDER BY n.table_id, n.kind
ON CONFLICT (table_id, kind) DO UPDATE
SET state = CASE WHEN t.state IN ('queued', 'waiting') AND EXCLUDED.state = 'queued' AND EXCLUDED.requested_by IS NULL
                      AND t.policies::text = EXCLUDED.policies::text
                 THEN t.state ELSE EXCLUDED.state END,
    message = CASE WHEN t.state IN ('queued', 'waiting') AND EXCLUDED.state = 'queued' AND EXCLUDED.requested_by IS NULL
                        AND t.policies::text = EXCLUDED.policies::text
                   THEN t.message ELSE EXCLUDED.message END,
    available = CASE WHEN t.state IN ('queued', 'waiting') AND EXCLUDED.requested_by IS NULL
                          AND t.policies::text = EXCLUDED.policies::text
                     THEN t.available ELSE EXCLUDED.available END,
    attempts = CASE WHEN t.state IN ('queued', 'waiting') AND EXCLUDED.requested_by IS NULL
                         AND t.policies::text = EXCLUDED.policies::text THEN t.attempts ELSE 0 END,
    created = CASE WHEN t.state IN ('queued', 'waiting') THEN t.created ELSE EXCLUDED.created END,
    changed = CASE WHEN t.state IN ('queued', 'waiting') AND EXCLUDED.state = 'queued' AND EXCLUDED.requested_by IS NULL
                        AND t.policies::text = EXCLUDED.policies::text
                   THEN t.changed ELSE EXCLUDED.changed END,
    why = EXCLUDED.why, estimate = EXCLUDED.estimate, rank = EXCLUDED.rank, digest = EXCLUDED.digest,
    policies = EXCLUDED.policies, target_size = EXCLUDED.target_size, condition = EXCLUDED.condition,
    requested_by = coalesce(EXCLUDED.requested_by, t.requested_by), claim = NULL, worker = NULL, counts = '{}'
WHERE (t.state IN ('queued', 'waiting') AND EXCLUDED.requested_by IS NOT NULL
       AND (t.requested_by IS NULL OR t.condition IS NOT DISTINCT FROM EXCLUDED.condition))
   OR (t.state IN ('queued', 'waiting') AND EXCLUDED.requested_by IS NULL AND t.condition IS NULL
       AND (EXCLUDED.state, EXCLUDED.why, EXCLUDED.estimate::text, EXCLUDED.rank, EXCLUDED.digest, EXCLUDED.policies::text,
            EXCLUDED.target_size)
           IS DISTINCT FROM ('queued', t.why, t.estimate::text, t.rank, t.digest, t.policies::text, t.target_size))
   OR (t.state NOT IN ('running', 'queued', 'waiting') AND (EXCLUDED.requested_by IS NOT NULL OR (
       (t.available <= clock_timestamp() OR t.policies::text <> EXCLUDED.policies::text)
       AND (CASE WHEN %(is_repeated)s THEN (EXCLUDED.state, EXCLUDED.message) IS DISTINCT FROM (t.state, t.message)
            ELSE t.digest <> EXCLUDED.digest
                 AND (t.state = 'done' OR t.changed < clock_timestamp() - interval '1 minute') END
            OR t.changed < clock_timestamp() - interval '1 day'))))
RETURNING t.table_id, t.kind, t.state = 'queued' AND t.available >= statement_timestamp();

-- held: of tables and kinds what the queue has, with its condition; a task whose worker is lost is queued
SELECT t.table_id, t.kind, t.condition,
       CASE WHEN t.state = 'running' AND t.lease_until < clock_timestamp() THEN 'queued' ELSE t.state END
FROM unnest(%(table_ids)s::bigint[], %(kinds)s::text[]) AS n (table_id, kind)
JOIN duckicelake_upkeep_task t USING (table_id, kind);

-- notify: workers of new tasks in this lake
SELECT pg_notify(%(channel)s, current_schema());

-- schema: of the lake
SELECT current_schema();

-- forget: tasks of these kinds that are no longer due, and of tables that are gone
DELETE FROM duckicelake_upkeep_task t
WHERE t.state <> 'running' AND (
    (t.kind = ANY (%(kinds)s) AND t.requested_by IS NULL AND t.state <> 'done' AND NOT EXISTS (
        SELECT FROM unnest(%(due_tables)s::bigint[], %(due_kinds)s::text[]) AS d (table_id, kind)
        WHERE d.table_id = t.table_id AND d.kind = t.kind))
    OR (t.changed < clock_timestamp() - interval '2 days' AND t.state IN ('done', 'failed', 'blocked'))
    OR (t.state <> 'done' AND NOT EXISTS (
        SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)));

-- lock: let one worker at a time take a task of the lake
SELECT FROM duckicelake_upkeep FOR UPDATE;

-- claim: take the best task, unless as many run as may, or one of its table: what was asked for, what has been due for a
-- day, then what gains most for its cost
UPDATE duckicelake_upkeep_task
SET state = 'running', claim = %(claim)s, worker = %(worker)s, attempts = attempts + 1, message = NULL, counts = '{}',
    lease_until = clock_timestamp() + %(seconds)s * interval '1 second', changed = clock_timestamp()
WHERE task_id = (
    SELECT t.task_id FROM duckicelake_upkeep_task t
    WHERE t.kind = ANY (%(kinds)s)
      AND ((t.state IN ('queued', 'waiting') AND t.available <= clock_timestamp())
           OR (t.state = 'running' AND t.lease_until < clock_timestamp()))
      AND NOT EXISTS (
          SELECT FROM duckicelake_upkeep_task r
          WHERE r.table_id = t.table_id AND r.state = 'running' AND r.lease_until >= clock_timestamp())
      AND %(at_once)s > (
          SELECT count(*) FROM duckicelake_upkeep_task r WHERE r.state = 'running' AND r.lease_until >= clock_timestamp())
    ORDER BY t.requested_by IS NULL, CASE WHEN t.created < clock_timestamp() - interval '1 day' THEN t.created END, t.rank DESC, t.available, t.task_id
    LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING task_id, table_id, kind, why, estimate, policies, target_size, condition, attempts,
          trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint, created < clock_timestamp() - interval '1 day',
          requested_by IS NOT NULL;

-- has_writers: whether others write to the lake: a snapshot each second, without upkeep's
SELECT count(*) >= 5
FROM (SELECT snapshot_id, snapshot_time FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 100) s
JOIN ducklake_snapshot_changes c USING (snapshot_id)
WHERE s.snapshot_time > clock_timestamp() - interval '5 seconds'
  AND c.changes_made !~ '(compacted_table|merge_adjacent|rewrite_delete|inline_flush|flushed_inlined):';

-- renew: say that a task goes on, and how far it is; the time in milliseconds since the epoch
UPDATE duckicelake_upkeep_task
SET lease_until = clock_timestamp() + %(seconds)s * interval '1 second', counts = %(counts)s
WHERE claim = %(claim)s AND state = 'running'
RETURNING trunc(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- finish: say what came of a task, and when it may be taken again, or put into the queue again if it ended; what is to be
-- tried again after a failed attempt later each time, and at random
UPDATE duckicelake_upkeep_task
SET state = %(state)s, message = %(message)s, changed = clock_timestamp(), worker = NULL, claim = NULL, lease_until = NULL,
    counts = CASE WHEN %(state)s = 'done' THEN %(counts)s::json ELSE counts END,
    requested_by = CASE WHEN %(state)s IN ('queued', 'waiting') THEN requested_by END,
    attempts = CASE WHEN %(is_attempt)s THEN attempts ELSE greatest(attempts - 1, 0) END,
    available = CASE
        WHEN %(until_ms)s::bigint IS NOT NULL THEN to_timestamp(%(until_ms)s / 1000.0)
        WHEN %(is_attempt)s AND %(state)s IN ('queued', 'waiting') THEN clock_timestamp()
            + least(%(backoff)s * 2 ^ least(attempts - 1, 20), 3600) * (0.5 + random()) * interval '1 second'
        ELSE clock_timestamp() END
WHERE claim = %(claim)s AND state = 'running';

-- names: of a live table
SELECT s.schema_name, t.table_name
FROM ducklake_table t JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL
WHERE t.end_snapshot IS NULL AND t.table_id = %(table_id)s;

-- tasks: those of tables that may be seen, with names, and why those that are due aren't taken: whether the worker is lost,
-- what runs of the same table, how many run, for how many seconds they have been due
WITH running AS MATERIALIZED (
    SELECT table_id, kind FROM duckicelake_upkeep_task WHERE state = 'running' AND lease_until >= clock_timestamp()
)
SELECT t.task_id, s.schema_name, l.table_name, t.kind,
       CASE WHEN t.state = 'running' AND t.lease_until < clock_timestamp() THEN 'queued' ELSE t.state END,
       t.why, t.message, t.estimate, t.requested_by, t.attempts, t.available, t.created, t.changed, t.worker,
       CASE WHEN t.state = 'running' THEN t.lease_until END, t.claim, t.counts,
       t.state = 'running' AND t.lease_until < clock_timestamp(),
       (SELECT r.kind FROM running r WHERE r.table_id = t.table_id LIMIT 1),
       (SELECT count(*) FROM running),
       CASE WHEN t.state IN ('queued', 'waiting')
            THEN extract(epoch FROM clock_timestamp() - greatest(t.available, t.changed))::float8 END
FROM duckicelake_upkeep_task t
JOIN ducklake_table l ON l.table_id = t.table_id AND l.end_snapshot IS NULL
JOIN duckicelake_schemas() s ON s.schema_id = l.schema_id AND s.end_snapshot IS NULL
WHERE t.task_id > %(after)s
  AND (%(state)s::text IS NULL
       OR %(state)s = CASE WHEN t.state = 'running' AND t.lease_until < clock_timestamp() THEN 'queued' ELSE t.state END)
  AND (%(schema_name)s::text IS NULL OR s.schema_name = %(schema_name)s
       OR (%(table_name)s::text IS NULL AND duckicelake_is_within(s.schema_name, %(schema_name)s)))
  AND (%(table_name)s::text IS NULL OR l.table_name = %(table_name)s)
  AND (%(visible)s::text[] IS NULL OR EXISTS (
      SELECT FROM unnest(%(visible)s::text[]) AS v (namespace) WHERE duckicelake_is_within(s.schema_name, namespace))
      OR t.table_id = ANY (%(visible_ids)s))
ORDER BY t.task_id
LIMIT %(limit)s;

-- totals: how many tasks there are by state, and for how many seconds the oldest that may be taken has been there
SELECT t.state, count(*),
       coalesce(extract(epoch FROM clock_timestamp() - min(t.created) FILTER (WHERE t.available <= clock_timestamp())), 0)::float8
FROM duckicelake_upkeep_task t GROUP BY t.state;

-- failures: of workers' attempts, those in the last hour that didn't do their task, by kind
SELECT j.kind, count(*)
FROM (
    SELECT kind, engine FROM duckicelake_job
    WHERE result IN ('failed', 'lost', 'skipped') AND ended > statement_timestamp() - interval '1 hour'
      AND (result <> 'skipped' OR message NOT IN ('the worker stops', 'the worker stopped', 'quiet hours have begun'))
    UNION ALL
    SELECT kind, engine FROM duckicelake_job
    WHERE ended IS NULL AND lease_until < statement_timestamp()
      AND lease_until > statement_timestamp() - interval '1 hour'
) AS j
WHERE starts_with(j.engine, 'duckicelake upkeep on ')
GROUP BY j.kind;
