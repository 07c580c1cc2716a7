-- Materialized views: tables with the result of a query, which refreshes alone write. The row of a dropped one stays for as
-- long as the table can be brought back.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE TABLE duckicelake_materialized_view (
    table_id        bigint      PRIMARY KEY REFERENCES duckicelake_table ON DELETE CASCADE,
    query           text        NOT NULL,  -- as it was written
    schema_name     text        NOT NULL,  -- where tables are looked up that the query names without a namespace
    names           json        NOT NULL,  -- what names in the query stand for: [schema, name, kind, DuckLake's id]
    definer         text        NOT NULL,  -- with whose rights it reads
    definer_id      bigint,                -- of its row among the principals; null: it has none
    definer_scopes  text[]      NOT NULL,  -- of one without a row, as they were
    definer_groups  text[]      NOT NULL,
    created         timestamptz NOT NULL DEFAULT clock_timestamp(),
    every_seconds   bigint      CHECK (every_seconds > 0),      -- null: not by the clock
    on_change       boolean     NOT NULL DEFAULT false,         -- refresh once a source has changed
    snapshot_id     bigint      NOT NULL,  -- DuckLake's, at which all sources were read
    own_snapshot_id bigint      NOT NULL,  -- DuckLake's, which wrote the contents
    fresh_as_of     timestamptz NOT NULL,  -- when snapshot_id was the newest
    sources         json        NOT NULL,  -- the tables and views that were read
    digest          bytea       NOT NULL,  -- of all SQL that was read, by ids of tables
    refreshes       bigint      NOT NULL DEFAULT 0,
    refreshed       timestamptz NOT NULL,
    mode            text        NOT NULL CHECK (mode IN ('whole', 'incremental', 'unchanged')),
    reason          text        NOT NULL,  -- why in this mode
    rows_written    bigint      NOT NULL,
    seconds         real        NOT NULL,
    error           text,                  -- why the last refresh failed; null once one succeeds
    failed_at       timestamptz
);

-- Functions keep the search path of this moment: DuckDB and pg_restore run them under another. What moves rows without
-- changing any may be done: flushes, compaction, expiry. So may renames and drops.
CREATE FUNCTION duckicelake_refuse_view_writes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    refused record;
BEGIN
    IF NOT EXISTS (SELECT FROM duckicelake_materialized_view) THEN
        RETURN NULL;
    END IF;
    SELECT n.schema_name, t.table_name INTO refused
    FROM regexp_matches(
        regexp_replace(NEW.changes_made, '"([^"]|"")*"', '', 'g'),
        '(inserted_into_table|deleted_from_table|altered_table|inlined_insert|inlined_delete):(\d+)', 'g') AS change
    JOIN duckicelake_materialized_view v ON v.table_id = change[2]::bigint
    JOIN ducklake_table t ON t.table_id = v.table_id AND t.end_snapshot IS NULL
    JOIN duckicelake_schemas() n ON n.schema_id = t.schema_id
    WHERE current_setting('duckicelake.delta_sync', true) IS DISTINCT FROM v.table_id::text
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '%', format(
            'Table %s.%s is a materialized view, which refreshes alone write: change its sources, and run '
            '`duckicelake materialized-view refresh %1$s.%2$s`', refused.schema_name, refused.table_name)
            USING ERRCODE = 'DIRO1';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_refuse_view_writes AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made ~ '(inserted_into_table|deleted_from_table|altered_table|inlined_insert|inlined_delete):[0-9]')
EXECUTE FUNCTION duckicelake_refuse_view_writes();
