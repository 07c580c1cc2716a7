-- table: the uuid of a live table, and the first snapshot that has it
SELECT table_uuid::text, (SELECT min(begin_snapshot) FROM ducklake_table WHERE table_id = %(table_id)s)
FROM ducklake_table WHERE table_id = %(table_id)s AND end_snapshot IS NULL;

-- oldest_kept: the oldest snapshot from which all up to another are kept
SELECT min(snapshot_id)
FROM (
    SELECT snapshot_id, snapshot_id + row_number() OVER (ORDER BY snapshot_id DESC) AS run
    FROM ducklake_snapshot WHERE snapshot_id <= %(upto)s
) s
WHERE run = %(upto)s + 1;

-- newest: the newest snapshot
SELECT max(snapshot_id) FROM ducklake_snapshot;

-- at_time: the snapshot that was the newest at a time
SELECT max(snapshot_id) FROM ducklake_snapshot WHERE snapshot_time <= %(time)s;

-- rearranged: snapshots in (after, upto] at which files left the table, or came back to it, for which DuckLake also
-- lists rows of theirs that were gone before, or didn't come back. One by which main goes back has a schema version
SELECT begin_snapshot FROM ducklake_schema_versions
WHERE table_id = %(table_id)s AND begin_snapshot > %(after)s AND begin_snapshot <= %(upto)s
UNION
SELECT end_snapshot FROM ducklake_data_file
WHERE table_id = %(table_id)s AND end_snapshot > %(after)s AND end_snapshot <= %(upto)s;
