-- note: a run's newest commit to a table
INSERT INTO duckicelake_run (table_id, run_id, epoch, snapshot_id, summary)
VALUES (%(table_id)s, %(run_id)s, %(epoch)s, %(snapshot_id)s, %(summary)s)
ON CONFLICT (table_id, run_id) DO UPDATE
SET epoch = excluded.epoch, snapshot_id = excluded.snapshot_id, summary = excluded.summary, committed = excluded.committed
WHERE duckicelake_run.epoch < excluded.epoch;

-- newest: what a run committed to a table last
SELECT epoch, snapshot_id, committed, summary FROM duckicelake_run
WHERE table_id = %(table_id)s AND run_id = %(run_id)s;

-- newest_by_name: what a run committed last to the live table of a name
SELECT r.epoch, r.snapshot_id, r.committed, r.summary
FROM duckicelake_run r
JOIN ducklake_table t ON t.table_id = r.table_id AND t.end_snapshot IS NULL AND t.table_name = %(table_name)s
JOIN duckicelake_schemas() s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL AND s.schema_name = %(schema_name)s
WHERE r.run_id = %(run_id)s;
