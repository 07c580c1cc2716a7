-- 0007_held_history.sql was edited after lakes had it.
DROP VIEW IF EXISTS duckicelake_overdue_snapshot;
CREATE INDEX IF NOT EXISTS duckicelake_scheduled_file_name
    ON ducklake_files_scheduled_for_deletion (duckicelake_file_name(path));
