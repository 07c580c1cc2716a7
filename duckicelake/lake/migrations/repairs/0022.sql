-- 0022_delta_logs.sql was edited after lakes had it. A log whose version isn't known is looked at again.
ALTER TABLE duckicelake_delta_log ADD COLUMN IF NOT EXISTS is_looked_at boolean NOT NULL DEFAULT false;
UPDATE duckicelake_delta_log SET table_version = 0 WHERE table_version IS NULL;
ALTER TABLE duckicelake_delta_log ALTER COLUMN table_version SET NOT NULL;
