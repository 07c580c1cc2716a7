-- 0009_audit.sql was edited after lakes had it.
DROP INDEX IF EXISTS duckicelake_audit_resource;
