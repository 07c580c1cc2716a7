-- record: a table's Delta table. DuckDB's merges and rewrites of all tables leave out one that is followed
WITH left_out AS (
    INSERT INTO ducklake_metadata (key, value, scope, scope_id)
    SELECT 'auto_compact', 'false', 'table', %(table_id)s WHERE %(following)s
)
INSERT INTO duckicelake_delta_source (table_id, root, delta_id, version, digest, following, state, shape)
VALUES (%(table_id)s, %(root)s, %(delta_id)s, %(version)s, %(digest)s, %(following)s, %(state)s,
    duckicelake_table_shape(%(table_id)s));

-- sources: Delta tables of live tables, by name: all, the followed ones, or one; with what may be much of one alone
SELECT s.table_id, n.schema_name, t.table_name, s.root, s.delta_id, s.version, s.digest, s.following,
       CASE WHEN %(table_name)s::text IS NOT NULL THEN s.state END, s.error, s.failed_at
FROM duckicelake_delta_source s
JOIN ducklake_table t ON t.table_id = s.table_id AND t.end_snapshot IS NULL
JOIN duckicelake_schemas() n ON n.schema_id = t.schema_id AND n.end_snapshot IS NULL
WHERE (s.following OR NOT %(followed)s)
  AND (%(table_name)s::text IS NULL OR (n.schema_name, t.table_name) = (%(schema_name)s, %(table_name)s))
ORDER BY n.schema_name, t.table_name;

-- move: to the version that this transaction brings, unless another has brought it, or a user has taken the table over
UPDATE duckicelake_delta_source
SET delta_id = %(delta_id)s, version = %(version)s, digest = %(digest)s, state = %(state)s,
    shape = duckicelake_table_shape(%(table_id)s), error = NULL, failed_at = NULL
WHERE table_id = %(table_id)s AND version = %(before)s AND following = %(following)s;

-- is_redefined: whether the table's definition isn't any more what its Delta version made it
SELECT shape <> duckicelake_table_shape(table_id) FROM duckicelake_delta_source WHERE table_id = %(table_id)s;

-- fail: why the next version can't be had, and since when
UPDATE duckicelake_delta_source SET error = %(error)s, failed_at = clock_timestamp()
WHERE table_id = %(table_id)s AND version = %(version)s AND error IS DISTINCT FROM %(error)s;

-- recover: nothing is wrong any more
UPDATE duckicelake_delta_source SET error = NULL, failed_at = NULL WHERE table_id = %(table_id)s;

-- adopt: from now on the table is written here, and no task waits to follow it or says why it couldn't
WITH compacted AS (
    DELETE FROM ducklake_metadata
    WHERE key = 'auto_compact' AND value = 'false' AND scope = 'table' AND scope_id = %(table_id)s
),
ended AS (
    DELETE FROM duckicelake_upkeep_task WHERE table_id = %(table_id)s AND kind = %(kind)s AND state <> 'running'
)
UPDATE duckicelake_delta_source SET following = false, error = NULL, failed_at = NULL
WHERE table_id = %(table_id)s AND following;

-- is_any_followed: whether the lake has a followed table
SELECT EXISTS (
    SELECT FROM duckicelake_delta_source s
    JOIN ducklake_table t ON t.table_id = s.table_id AND t.end_snapshot IS NULL
    WHERE s.following);

-- open_tasks: tables whose last task isn't done
SELECT table_id FROM duckicelake_upkeep_task WHERE kind = %(kind)s AND state <> 'done';

-- followed: followed tables of some names, their tasks that aren't done, when new versions are looked for next, and whether
-- a process looks for any. A look that takes long is over its time
SELECT n.schema_name, t.table_name, s.root, s.version, s.error, s.listed, q.state, q.why, q.message, q.available,
       extract(epoch FROM clock_timestamp() - coalesce(s.failed_at, q.created))::float8,
       (SELECT next_look FROM duckicelake_upkeep_look WHERE setting = %(setting)s AND next_look > clock_timestamp()),
       EXISTS (SELECT FROM duckicelake_upkeep_presence
               WHERE setting = %(setting)s AND noted > clock_timestamp() - %(absent_seconds)s * interval '1 second')
FROM unnest(%(schemas)s::text[], %(tables)s::text[]) AS w (schema_name, table_name)
JOIN duckicelake_schemas() n ON n.schema_name = w.schema_name AND n.end_snapshot IS NULL
JOIN ducklake_table t ON t.schema_id = n.schema_id AND t.table_name = w.table_name AND t.end_snapshot IS NULL
JOIN duckicelake_delta_source s ON s.table_id = t.table_id AND s.following
LEFT JOIN duckicelake_upkeep_task q ON q.table_id = s.table_id AND q.kind = %(kind)s AND q.state <> 'done'
ORDER BY n.schema_name, t.table_name;

-- take_listings: those of some tables whose logs are to be listed, unless another process is at it. A next version that
-- isn't there says nothing of a log that was cleaned up or replaced. A time to come is one of before the clock was set
-- back
UPDATE duckicelake_delta_source SET listed = clock_timestamp()
WHERE table_id IN (
    SELECT table_id FROM duckicelake_delta_source s
    WHERE following AND table_id = ANY (%(table_ids)s)
      AND (listed IS NULL OR listed < clock_timestamp() - %(seconds)s * interval '1 second'
           OR listed > clock_timestamp())
      AND EXISTS (SELECT FROM ducklake_table t WHERE t.table_id = s.table_id AND t.end_snapshot IS NULL)
    FOR UPDATE SKIP LOCKED)
RETURNING table_id;
