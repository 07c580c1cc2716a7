-- In byte order, the folders of a table's files are found by skipping from one to the next (sql/file_folders.sql).
CREATE INDEX duckicelake_file_in_order ON duckicelake_file (table_id, path COLLATE "C");
CREATE INDEX duckicelake_artifact_in_order ON duckicelake_artifact (table_id, path COLLATE "C");
