-- Each commit pays for every index that its rows are in. Those ordered bytewise serve who looks for a path, too, once it
-- says COLLATE "C"; and DuckLake's table-wide statistics are changed column by column.
DROP INDEX duckicelake_file_table_id_path_idx;
DROP INDEX duckicelake_artifact_table_id_path_idx;
CREATE INDEX duckicelake_table_column_stats_of ON ducklake_table_column_stats (table_id, column_id);
DROP INDEX duckicelake_table_column_stats;
