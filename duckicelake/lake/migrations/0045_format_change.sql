-- `duckicelake migrate` opens the guard of migration 0032 for one ATTACH of DuckDB 2, while no one writes. The row here
-- counts as long as the command's session holds its advisory lock and the time isn't over, so a command that is killed
-- leaves a closed guard and a lake that is written as before.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE duckicelake_format_change (
    is_only      boolean     PRIMARY KEY DEFAULT true CHECK (is_only),
    token        uuid        NOT NULL DEFAULT gen_random_uuid(),  -- the ATTACH names it
    backend      integer     NOT NULL,                            -- the command's session
    expires_at   timestamptz NOT NULL,
    is_open      boolean     NOT NULL DEFAULT false,              -- or else writers are still being waited for
    migrated_at  timestamptz,
    migrated_by  integer                                          -- DuckDB's session
);

-- The two parts of the advisory lock's key; the second one is this lake's in the database.
CREATE FUNCTION duckicelake_format_change_lake() RETURNS integer
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT ('ducklake_metadata'::regclass::oid::bigint - 2147483648)::integer
$$;

-- Whether writers are refused now.
CREATE FUNCTION duckicelake_is_changing_format() RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM duckicelake_format_change) THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT FROM duckicelake_format_change c JOIN pg_locks l ON l.pid = c.backend
        WHERE c.expires_at > clock_timestamp() AND l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
          AND l.classid::bigint = 1718449251 AND l.objid::bigint = (duckicelake_format_change_lake()::bigint & 4294967295)
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()));
END $$;

CREATE OR REPLACE FUNCTION duckicelake_keep_version() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    is_version boolean := TG_OP = 'TRUNCATE';
    given      text    := coalesce(current_setting('duckicelake.format_change', true), '');
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
    IF is_version AND TG_OP = 'UPDATE' AND given <> '' AND duckicelake_is_changing_format() THEN
        UPDATE duckicelake_format_change c SET migrated_at = clock_timestamp(), migrated_by = pg_backend_pid()
        WHERE c.token::text = given AND c.is_open AND c.migrated_at IS NULL
          AND OLD.key = NEW.key AND OLD.scope IS NULL AND NEW.scope IS NULL;
        is_version := NOT FOUND;
    END IF;
    IF is_version AND given <> '' THEN
        RAISE EXCEPTION 'This ATTACH came too late: its `duckicelake migrate` has ended. Nothing was changed. Run '
            '`duckicelake migrate` again, and then the ATTACH that it prints';
    ELSIF is_version THEN
        RAISE EXCEPTION 'duckicelake serves this lake in DuckLake format %, so its version can''t be changed. '
            'Nothing was changed. Attach the lake without AUTOMATIC_MIGRATION: DuckDB 1.5 and 2.0 both read and write it '
            'as it is. To migrate it for good, ask its operator to run `duckicelake migrate` (docs/ducklake-versions.md)',
            (SELECT string_agg(value, ', ') FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL);
    END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- While the format changes, nothing makes a DuckLake snapshot. Other writes go on: a load writes what it has derived from
-- DuckLake's rows to side tables, which DuckDB's migration doesn't touch. DuckDB's sessions declare no formats, and may
-- not read the tables above: the owner asks for them.
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
