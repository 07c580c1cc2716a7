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
