-- 0010_ownership.sql was edited after lakes had it. Its trigger's function is made anew by later migrations.
DO $$
BEGIN
    IF pg_get_indexdef(to_regclass('duckicelake_table_place')) NOT LIKE '%left%' THEN
        DROP INDEX duckicelake_table_place, duckicelake_view_place;
        CREATE INDEX duckicelake_table_place ON duckicelake_table
            ((left(duckicelake_canonical_path(location), 500)) COLLATE "C");
        CREATE INDEX duckicelake_view_place ON duckicelake_view
            ((left(duckicelake_canonical_path(metadata ->> 'location'), 500)) COLLATE "C");
        CREATE INDEX duckicelake_file_place ON duckicelake_file
            ((left(duckicelake_canonical_path(path), 500)) COLLATE "C");
        CREATE INDEX duckicelake_artifact_place ON duckicelake_artifact
            ((left(duckicelake_canonical_path(path), 500)) COLLATE "C");
        CREATE INDEX duckicelake_data_file_place ON ducklake_data_file
            ((left(duckicelake_canonical_path(path), 500)) COLLATE "C") WHERE NOT path_is_relative;
    END IF;
END $$;
