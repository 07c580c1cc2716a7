-- Dropped tables, views and schemas can be brought back for a while. The snapshot before a drop shows what was dropped;
-- as long as that snapshot is there, DuckLake keeps all rows and files of it. So it stays until the time is over,
-- whatever DuckDB expires.

-- How long what is dropped stays. Lakes that had tables before go on as they were: nothing stays.
ALTER TABLE duckicelake_lake ADD COLUMN drop_retention interval NOT NULL DEFAULT '0';
UPDATE duckicelake_lake SET drop_retention = '7 days' WHERE NOT EXISTS (SELECT FROM ducklake_table);

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE duckicelake_dropped (
    kind        text        NOT NULL CHECK (kind IN ('table', 'view', 'namespace')),
    object_id   bigint      NOT NULL,
    snapshot_id bigint      NOT NULL,               -- the one that dropped it
    dropped_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    kept_until  timestamptz NOT NULL,
    is_purged   boolean     NOT NULL DEFAULT false, -- its files go when the time is over
    PRIMARY KEY (kind, object_id)
);
CREATE INDEX duckicelake_dropped_snapshot ON duckicelake_dropped (snapshot_id);
CREATE INDEX duckicelake_dropped_until ON duckicelake_dropped (kept_until);

-- What a snapshot changed is written last, when all else is there. Lists of names may hold anything.
CREATE FUNCTION duckicelake_note_dropped() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    retention interval := (SELECT drop_retention FROM duckicelake_lake);
BEGIN
    IF retention <= '0' THEN
        RETURN NULL;
    END IF;
    INSERT INTO duckicelake_dropped (kind, object_id, snapshot_id, kept_until)
    SELECT DISTINCT CASE token[1] WHEN 'schema' THEN 'namespace' ELSE token[1] END, token[2]::bigint, NEW.snapshot_id,
           clock_timestamp() + retention
    FROM regexp_matches(regexp_replace(NEW.changes_made, '"([^"]|"")*"', '', 'g'),
                        'dropped_(table|view|schema):(\d+)', 'g') AS token
    ON CONFLICT (kind, object_id) DO UPDATE
    SET snapshot_id = excluded.snapshot_id, dropped_at = excluded.dropped_at, kept_until = excluded.kept_until,
        is_purged = false;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_note_dropped AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made ~ 'dropped_(table|view|schema):') EXECUTE FUNCTION duckicelake_note_dropped();

-- Whether a snapshot is the last one that shows something which may be brought back.
CREATE FUNCTION duckicelake_shows_dropped(id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (SELECT FROM duckicelake_dropped WHERE snapshot_id = id + 1 AND kept_until > clock_timestamp())
$$;

CREATE FUNCTION duckicelake_keep_dropped() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    RETURN CASE WHEN duckicelake_shows_dropped(OLD.snapshot_id) THEN NULL ELSE OLD END;
END $$;

CREATE TRIGGER duckicelake_keep_dropped BEFORE DELETE ON ducklake_snapshot
FOR EACH ROW EXECUTE FUNCTION duckicelake_keep_dropped();
CREATE TRIGGER duckicelake_keep_dropped BEFORE DELETE ON ducklake_snapshot_changes
FOR EACH ROW EXECUTE FUNCTION duckicelake_keep_dropped();

-- Whether a table's side rows keep its files: it is live, or was dropped without purge, or may be brought back.
CREATE OR REPLACE FUNCTION duckicelake_keeps_files(id bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT FROM duckicelake_table t
        WHERE t.table_id = id AND (t.outlives_drop OR EXISTS (
            SELECT FROM ducklake_table l WHERE l.table_id = t.table_id AND l.end_snapshot IS NULL)))
        OR EXISTS (
            SELECT FROM duckicelake_dropped d
            WHERE d.kind = 'table' AND d.object_id = id AND d.kept_until > clock_timestamp())
$$;

-- The comments of a view's columns that ended with it, which a lake of 1.0 has no table of.
CREATE FUNCTION duckicelake_return_view_column_tags(id bigint, dropped bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('ducklake_view_column_tag') IS NOT NULL THEN
        UPDATE ducklake_view_column_tag SET end_snapshot = NULL WHERE view_id = id AND end_snapshot = dropped;
    END IF;
END $$;

-- A table that comes back has a row again after its last one ended, as a renamed one that was dropped meanwhile.
CREATE OR REPLACE FUNCTION duckicelake_check_renames() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    renamed record;
BEGIN
    FOR renamed IN
        SELECT t.table_id, t.table_name, bool_or(coalesce(before.end_snapshot, t.begin_snapshot) = t.begin_snapshot) AS lived
        FROM ducklake_table t JOIN ducklake_table before
          ON before.table_id = t.table_id AND before.begin_snapshot < t.begin_snapshot
        WHERE t.begin_snapshot = NEW.snapshot_id
        GROUP BY 1, 2
    LOOP
        -- One that comes back has columns again.
        IF NOT renamed.lived AND NOT EXISTS (
            SELECT FROM ducklake_column c WHERE c.table_id = renamed.table_id AND c.end_snapshot IS NULL)
        THEN
            RAISE EXCEPTION 'Can''t rename the table to "%": another transaction has dropped it', renamed.table_name;
        END IF;
        -- The last two tables of inlined rows differ only if columns changed between them.
        IF EXISTS (
            SELECT FROM (
                SELECT begin_snapshot AS at, duckicelake_inlined_columns(table_name) AS columns,
                       lag(begin_snapshot) OVER versions AS previous_at,
                       lag(duckicelake_inlined_columns(table_name)) OVER versions AS previous_columns
                FROM ducklake_inlined_data_tables JOIN ducklake_schema_versions USING (table_id, schema_version)
                WHERE table_id = renamed.table_id
                WINDOW versions AS (ORDER BY schema_version)
            ) inlined
            WHERE at = NEW.snapshot_id AND columns <> previous_columns AND NOT EXISTS (
                SELECT FROM ducklake_column c WHERE c.table_id = renamed.table_id
                AND (c.begin_snapshot > previous_at AND c.begin_snapshot <= at
                     OR c.end_snapshot > previous_at AND c.end_snapshot <= at))
        ) THEN
            RAISE EXCEPTION 'Can''t rename the table to "%": another transaction has changed its columns',
                renamed.table_name;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
