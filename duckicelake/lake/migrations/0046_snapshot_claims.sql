-- While `duckicelake migrate` runs, nothing makes a DuckLake snapshot. Other writes go on: a load writes what it has
-- derived from DuckLake's rows to side tables, which DuckDB's migration doesn't touch.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- As in migration 0032.
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
        RAISE EXCEPTION 'The lake has DuckLake format %, and this server serves %', coalesce(format, 'none'), formats
            USING ERRCODE = 'DIUF1';
    END IF;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION duckicelake_check_known() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM duckicelake_require_known(true);
    IF duckicelake_is_changing_format() THEN
        RAISE EXCEPTION USING ERRCODE = 'DIFC1', MESSAGE =
            'The lake''s DuckLake format is being changed, so nothing can be written for a moment'
            || CASE WHEN coalesce(current_setting('duckicelake.formats', true), '') = ''
                    THEN '. Then DETACH the lake, ATTACH it and try again' ELSE '' END;
    END IF;
    RETURN NULL;
END $$;
