-- When a file was written, by Postgres' clock: what was written last is what a power loss may have taken.
ALTER TABLE duckicelake_artifact ADD COLUMN written_at timestamptz NOT NULL DEFAULT now();
