-- record: what was seen so many seconds ago, of tables that there still are
INSERT INTO duckicelake_read (at, kind, principal, session, application, table_id, table_name, snapshot_id, projected,
                              filtered)
SELECT clock_timestamp() - seen.ago * interval '1 second', seen.kind, seen.principal, seen.session, seen.application,
       t.table_id, seen.full_name, seen.snapshot_id, seen.projected, seen.filtered
FROM json_to_recordset(%(seen)s::json) AS seen (ago float8, kind text, principal text, session text, application text,
        schema_name text, table_name text, full_name text, snapshot_id bigint, projected text[], filtered text[])
JOIN duckicelake_schemas() s ON s.schema_name = seen.schema_name AND s.end_snapshot IS NULL
JOIN ducklake_table t ON t.schema_id = s.schema_id AND t.table_name = seen.table_name AND t.end_snapshot IS NULL;

-- readers: of some programs, and of some applications, those of which anything is known
SELECT program, NULL FROM unnest(%(programs)s::text[]) AS asked (program)
WHERE EXISTS (SELECT FROM duckicelake_read r WHERE left(r.session, 16) = program)
UNION ALL
SELECT NULL, application FROM unnest(%(applications)s::text[]) AS asked (application)
WHERE EXISTS (SELECT FROM duckicelake_read r WHERE r.application = asked.application);

-- of_application: the newest before a moment of an application that has a name, its last write, lookups by its program,
-- and scans planned in its session; without loads of the outputs, which are no inputs
(SELECT id, at, kind, principal, session, application, table_id, table_name, snapshot_id, projected, filtered
 FROM duckicelake_read
 WHERE application = %(application)s AND principal = %(principal)s
   AND kind <> 'write' AND NOT (kind = 'load' AND table_id = ANY(%(outputs)s))
   AND at < %(before)s AND at >= %(before)s - %(life)s
 ORDER BY at DESC, id DESC LIMIT %(most)s)
UNION ALL
(SELECT id, at, kind, principal, session, application, table_id, table_name, snapshot_id, projected, filtered
 FROM duckicelake_read
 WHERE application = %(application)s AND principal = %(principal)s AND kind = 'write'
   AND at < %(before)s AND at >= %(before)s - %(life)s
 ORDER BY at DESC, id DESC LIMIT 1)
UNION ALL
(SELECT id, at, kind, principal, session, application, table_id, table_name, snapshot_id, projected, filtered
 FROM duckicelake_read
 WHERE left(session, 16) = left(%(session)s, 16) AND principal = %(principal)s
   AND (kind = 'lookup' AND table_id = ANY(%(outputs)s) OR kind = 'plan' AND session = %(session)s)
   AND at < %(before)s AND at >= %(before)s - %(life)s
 ORDER BY at DESC, id DESC LIMIT %(most)s);

-- in_session: the same of an application that is known by its session alone
(SELECT id, at, kind, principal, session, application, table_id, table_name, snapshot_id, projected, filtered
 FROM duckicelake_read
 WHERE left(session, 16) = left(%(session)s, 16) AND session = %(session)s AND principal = %(principal)s
   AND application IS NULL
   AND kind <> 'write' AND NOT (kind = 'load' AND table_id = ANY(%(outputs)s))
   AND at < %(before)s AND at >= %(before)s - %(life)s
 ORDER BY at DESC, id DESC LIMIT %(most)s)
UNION ALL
(SELECT id, at, kind, principal, session, application, table_id, table_name, snapshot_id, projected, filtered
 FROM duckicelake_read
 WHERE left(session, 16) = left(%(session)s, 16) AND session = %(session)s AND principal = %(principal)s
   AND application IS NULL AND kind = 'write'
   AND at < %(before)s AND at >= %(before)s - %(life)s
 ORDER BY at DESC, id DESC LIMIT 1);

-- mark: note that the application has written
INSERT INTO duckicelake_read (at, kind, principal, session, application, table_id, table_name, projected, filtered)
VALUES (%(at)s, 'write', %(principal)s, %(session)s, %(application)s, %(table_id)s, '', '{}', '{}');

-- prune: forget some of the oldest, and those beyond a number
WITH newest AS (SELECT id FROM duckicelake_read ORDER BY id DESC LIMIT 1)
DELETE FROM duckicelake_read WHERE id IN (
    SELECT id FROM duckicelake_read
    WHERE at < now() - %(window)s::interval AND (application IS NULL OR at < now() - %(life)s::interval)
       OR id <= (SELECT id FROM newest) - %(kept)s
    LIMIT %(most)s FOR UPDATE SKIP LOCKED
);
