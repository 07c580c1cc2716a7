-- Delta tables whose files are a table's here: which, and how far they have come. One that is followed is written by
-- Delta's writers alone; and what lies in a Delta table's folder is never the lake's to delete.
CREATE TABLE duckicelake_delta_source (
    table_id  bigint  PRIMARY KEY,
    root      text    NOT NULL,  -- the Delta table's folder, without a slash at its end
    delta_id  text    NOT NULL,  -- the id in its metadata
    version   bigint  NOT NULL,  -- the newest of its versions that is here
    digest    text,              -- SHA-256 of that version's file in the log, by which another table is told; null: unknown
    following boolean NOT NULL,
    state     json    NOT NULL,  -- what the translation of the next version must know of the ones before
    shape     text    NOT NULL,  -- the table's definition as that version made it, see duckicelake_table_shape
    error     text,              -- why the next version couldn't be had; null once it could
    failed_at timestamptz        -- since when that is so
);
CREATE INDEX duckicelake_delta_followed ON duckicelake_delta_source (table_id) WHERE following;

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What of a table's definition says how files are read and written; empty for one that no Iceberg client has seen.
CREATE FUNCTION duckicelake_table_shape(id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    SELECT coalesce((
        SELECT concat_ws('/', format_version, metadata ->> 'current-schema-id', metadata ->> 'last-column-id',
                         metadata ->> 'default-spec-id', metadata ->> 'default-sort-order-id')
        FROM duckicelake_table WHERE table_id = id), '')
$$;

-- Why a live table must not be written, as clients are told; null if it may be. Our own transactions that bring the next
-- version say whose by a setting.
CREATE FUNCTION duckicelake_read_only(id bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT format('Table %s.%s follows the Delta table %s and can''t be written here: write to that table, or take this '
                  'one over with `duckicelake delta adopt %1$s.%2$s`', n.schema_name, t.table_name, s.root)
    FROM duckicelake_delta_source s
    JOIN ducklake_table t ON t.table_id = s.table_id AND t.end_snapshot IS NULL
    JOIN ducklake_schema n ON n.schema_id = t.schema_id
    WHERE s.table_id = id AND s.following
      AND current_setting('duckicelake.delta_sync', true) IS DISTINCT FROM s.table_id::text
    LIMIT 1
$$;

-- What a snapshot changed is written last, when all else is there. DuckDB's renames name no table by its id, and a
-- dropped one isn't live any more: both are free to do. Lists of names may hold anything, but none of it counts.
CREATE FUNCTION duckicelake_refuse_writes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    refused record;
BEGIN
    IF NOT EXISTS (SELECT FROM duckicelake_delta_source WHERE following) THEN
        RETURN NULL;
    END IF;
    SELECT change[1] AS kind, duckicelake_read_only(s.table_id) AS why INTO refused
    FROM regexp_matches(regexp_replace(NEW.changes_made, '"([^"]|"")*"', '', 'g'), '([a-z_]+):(\d+)', 'g') AS change
    JOIN duckicelake_delta_source s ON s.table_id = change[2]::bigint AND s.following
    WHERE duckicelake_read_only(s.table_id) IS NOT NULL
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', refused.why || CASE WHEN refused.kind IN ('merge_adjacent', 'rewrite_delete')
            THEN '. Merging and rewriting all tables leaves it out once you ATTACH the lake anew' ELSE '' END
            USING ERRCODE = 'DIRO1';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_refuse_writes AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made ~ ':[0-9]') EXECUTE FUNCTION duckicelake_refuse_writes();

-- Before `duckicelake_keep_named_file`: triggers run by name. A shallow clone has files of another Delta table's folder.
CREATE FUNCTION duckicelake_keep_delta_file() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    resolved text;
BEGIN
    IF NEW.path_is_relative OR NOT EXISTS (SELECT FROM duckicelake_delta_source) THEN
        RETURN NEW;
    END IF;
    resolved := duckicelake_canonical_path(NEW.path);
    IF EXISTS (
        SELECT FROM duckicelake_delta_source WHERE starts_with(resolved, duckicelake_canonical_path(root) || '/')
    ) OR EXISTS (
        SELECT FROM duckicelake_file f
        JOIN duckicelake_delta_source s ON s.table_id = f.table_id
        JOIN duckicelake_table t ON t.table_id = f.table_id
        WHERE duckicelake_file_name(f.path) = duckicelake_file_name(resolved)
          AND duckicelake_canonical_path(f.path) = resolved
          AND NOT starts_with(resolved, duckicelake_canonical_path(t.location) || '/')
          AND NOT starts_with(resolved, duckicelake_resolve('', true) || '/')
    ) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER duckicelake_keep_delta_file BEFORE INSERT ON ducklake_files_scheduled_for_deletion
FOR EACH ROW EXECUTE FUNCTION duckicelake_keep_delta_file();
