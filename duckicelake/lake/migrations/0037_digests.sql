-- The SHA-256 of the migration as it was applied. Migrations before this one were edited after lakes had them: lakes
-- without digests are repaired (`repairs/`), and have those of today from then on.
ALTER TABLE duckicelake_migration ADD COLUMN digest text;
