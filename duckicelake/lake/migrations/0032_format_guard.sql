-- DuckDB 2.0 migrates a lake to DuckLake 1.1 under the servers of it, if one user attaches it with AUTOMATIC_MIGRATION: it
-- renames columns of inlined tables. The migration is one transaction that updates the version, so a refused update
-- undoes all of it. An operator takes the guard off as docs/production.md says.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION duckicelake_keep_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    is_version boolean := TG_OP = 'TRUNCATE';
BEGIN
    IF TG_OP IN ('UPDATE', 'DELETE') THEN
        is_version := OLD.key = 'version' AND OLD.scope IS NULL;
    END IF;
    IF TG_OP = 'UPDATE' THEN
        is_version := (is_version OR NEW.key = 'version' AND NEW.scope IS NULL) AND OLD IS DISTINCT FROM NEW;
    ELSIF TG_OP = 'INSERT' THEN -- the first one comes with a backup that is restored
        is_version := NEW.key = 'version' AND NEW.scope IS NULL
            AND EXISTS (SELECT FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL);
    END IF;
    IF is_version THEN
        RAISE EXCEPTION 'duckicelake serves this lake in DuckLake format %, so its version can''t be changed. '
            'Nothing was changed. Attach the lake without AUTOMATIC_MIGRATION: DuckDB 1.5 and 2.0 both read and write it '
            'as it is. To migrate it for good, ask its operator (docs/production.md, "DuckLake''s format")',
            (SELECT string_agg(value, ', ') FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL);
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE TRIGGER duckicelake_keep_version BEFORE INSERT OR UPDATE OR DELETE ON ducklake_metadata
FOR EACH ROW EXECUTE FUNCTION duckicelake_keep_version();

CREATE TRIGGER duckicelake_keep_versions BEFORE TRUNCATE ON ducklake_metadata
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_keep_version();

-- Raises DIUF1 if the session has declared what it knows, as servers' do, and the lake has another format; if it writes,
-- also if the lake has a later migration. Servers ask it in each transaction, and each new snapshot of theirs does.
CREATE FUNCTION duckicelake_require_known(writes boolean) RETURNS boolean
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

CREATE FUNCTION duckicelake_check_known() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM duckicelake_require_known(true);
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_known BEFORE INSERT ON ducklake_snapshot
FOR EACH STATEMENT EXECUTE FUNCTION duckicelake_check_known();
