-- lag: whether no server follows the lake, how many snapshots wait for their entries (a few thousand at the most), and for
-- how many seconds the first of them has waited
SELECT pg_try_advisory_xact_lock(%(key)s # {schema_key}),
       (SELECT count(*) FROM (
            SELECT FROM ducklake_snapshot s WHERE s.snapshot_id > c.snapshot_id LIMIT 10000) waiting),
       (SELECT extract(epoch FROM clock_timestamp() - s.snapshot_time)::float8 FROM ducklake_snapshot s
        WHERE s.snapshot_id > c.snapshot_id AND isfinite(s.snapshot_time) ORDER BY s.snapshot_id LIMIT 1)
FROM duckicelake_chronicle c;
