-- 0001_side_tables.sql was edited three times after lakes had it.
DO $$
BEGIN
    IF to_regclass('duckicelake_exported_delete') IS NOT NULL THEN
        IF EXISTS (SELECT FROM duckicelake_deletion WHERE positions IS NULL) THEN
            RAISE EXCEPTION 'The lake is one of duckicelake''s first days, whose deletes this version can''t read: '
                'copy its tables with DuckDB into a new lake';
        END IF;
        ALTER TABLE duckicelake_deletion ALTER COLUMN positions SET NOT NULL;
        ALTER TABLE duckicelake_exported_delete RENAME TO duckicelake_seen_delete;
        ALTER INDEX duckicelake_exported_delete_pkey RENAME TO duckicelake_seen_delete_pkey;
        ALTER INDEX duckicelake_exported_delete_table_id_idx RENAME TO duckicelake_seen_delete_table_id_idx;
    END IF;
END $$;
ALTER TABLE duckicelake_table ADD COLUMN IF NOT EXISTS epoch bigint NOT NULL DEFAULT 0;
ALTER TABLE duckicelake_table ALTER COLUMN epoch DROP DEFAULT;
ALTER TABLE duckicelake_table ADD COLUMN IF NOT EXISTS outlives_drop boolean NOT NULL DEFAULT false;
