-- A lake whose version says more than its tables have isn't written or read: a migration was left halfway, or the version
-- was changed by hand. Formats after 1.0 have all that 1.1 has.
CREATE OR REPLACE FUNCTION duckicelake_require_known(writes boolean) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    formats   text    := current_setting('duckicelake.formats', true);
    last      text    := current_setting('duckicelake.last_migration', true);
    format    text;
    migration integer;
BEGIN
    IF coalesce(formats, '') = '' THEN
        RETURN true;
    END IF;
    SELECT value INTO format FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL;
    SELECT max(number) INTO migration FROM duckicelake_migration;
    IF writes AND migration > last::integer THEN
        RAISE EXCEPTION 'A newer duckicelake has migrated the lake (migration %, this server knows %)', migration, last
            USING ERRCODE = 'DIUF1';
    ELSIF format IS NULL OR format <> ALL (string_to_array(formats, ',')) THEN
        RAISE EXCEPTION 'The lake has DuckLake format %, and this server serves %', coalesce(format, 'none'),
            replace(formats, ',', ', ') USING ERRCODE = 'DIUF1';
    ELSIF format <> '1.0' AND (
        SELECT count(*) < 2 FROM pg_attribute
        WHERE attrelid IN ('ducklake_data_file'::regclass, 'ducklake_delete_file'::regclass)
          AND attname = 'row_group_count' AND NOT attisdropped
    ) THEN
        RAISE EXCEPTION 'The lake''s version says DuckLake format %, but its tables lack columns of that: its migration was '
                        'left halfway, or the version was changed by hand (`duckicelake doctor` says more)', format
            USING ERRCODE = 'DIUF1';
    END IF;
    RETURN true;
END $$;
