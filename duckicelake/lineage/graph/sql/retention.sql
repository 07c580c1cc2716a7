-- events: some of those from before a time that wait for no receiver; never the newest
DELETE FROM duckicelake_lineage_event WHERE id IN (
    SELECT id FROM duckicelake_lineage_event
    WHERE at < %(before)s AND id < (SELECT max(newest.id) FROM duckicelake_lineage_event newest)
      AND id <= (SELECT coalesce(min(d.event_id), 9223372036854775807) FROM duckicelake_delivery d)
    ORDER BY at LIMIT %(most)s FOR UPDATE SKIP LOCKED
);

-- kept: how many of those wait for which receivers
SELECT d.transport, count(*)
FROM duckicelake_delivery d JOIN duckicelake_lineage_event e ON e.id > d.event_id
WHERE e.at < %(before)s AND e.origin <> 'received'
GROUP BY d.transport ORDER BY d.transport;

-- runs: some of those of which nothing was heard since a time, with what they read and wrote
WITH old AS (
    DELETE FROM duckicelake_lineage_run WHERE id IN (
        SELECT id FROM duckicelake_lineage_run
        WHERE last_seen < %(before)s ORDER BY last_seen LIMIT %(most)s FOR UPDATE SKIP LOCKED
    ) RETURNING id
), gone AS (
    DELETE FROM duckicelake_lineage_io WHERE run_id IN (SELECT id FROM old)
)
SELECT count(*) FROM old;
