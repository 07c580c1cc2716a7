-- files: files with every fact of their manifest entries
COPY duckicelake_file (file_id, table_id, content, path, file_format, spec_id, partition, record_count,
    file_size_in_bytes, added_snapshot_id, sequence_number, file_sequence_number, first_row_id, metrics, ducklake_id)
FROM STDIN;

-- deletions: positions that delete files remove from data files
COPY duckicelake_deletion (delete_file_id, data_file_id, table_id, positions) FROM STDIN;

-- virtual_files: the inlined rows that files serve
COPY duckicelake_virtual_file (file_id, table_id, inlined_table, row_ids, begin_snapshots) FROM STDIN;

-- manifests: the entries of manifests
COPY duckicelake_manifest (manifest_id, table_id, content, format_version, spec_id, schema_id, sequence_number,
    min_sequence_number, added_snapshot_id, added, existing, deleted, is_laid_out)
FROM STDIN;

-- snapshots: Iceberg snapshots
COPY duckicelake_snapshot (table_id, snapshot_id, proposed_id, ducklake_id, parent_snapshot_id, sequence_number,
    timestamp_ms, schema_id, first_row_id, added_rows, key_id, summary, manifest_ids)
FROM STDIN;

-- log_end: the ordinal of the newest entry of a snapshot log
SELECT coalesce(max(ordinal), 0) FROM duckicelake_snapshot_log WHERE table_id = %(table_id)s;

-- log: when main moved
COPY duckicelake_snapshot_log (table_id, ordinal, snapshot_id, timestamp_ms) FROM STDIN;

-- data_files: data files of main
COPY ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format, record_count,
    file_size_bytes, row_id_start, partition_id, mapping_id)
FROM STDIN;

-- values: their values of the partition keys
COPY ducklake_file_partition_value (data_file_id, table_id, partition_key_index, partition_value) FROM STDIN;

-- stats: statistics of their columns
COPY ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count, null_count,
    min_value, max_value, contains_nan)
FROM STDIN;

-- has_flags: whether statistics of files say if bounds are exact
SELECT count(*) = 2 FROM pg_attribute
WHERE attrelid = 'ducklake_file_column_stats'::regclass AND attname IN ('min_is_exact', 'max_is_exact')
  AND NOT attisdropped;

-- flagged_stats: statistics of columns in a lake with these flags
COPY ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count, null_count,
    min_value, max_value, contains_nan, min_is_exact, max_is_exact)
FROM STDIN;

-- changes: what DuckLake snapshots changed
COPY ducklake_snapshot_changes (snapshot_id, changes_made, commit_extra_info) FROM STDIN;
