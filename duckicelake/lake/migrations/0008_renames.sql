-- DuckDB's ALTER TABLE … RENAME notices no other transaction that altered or dropped the table meanwhile: it would bring
-- a dropped table back without columns, and register a table of inlined rows with the columns of before, on which every
-- DuckDB client then stops with a fatal internal error. Both are refused.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The columns of a table of inlined rows, as text.
CREATE FUNCTION duckicelake_inlined_columns(name text) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum)
    FROM pg_attribute WHERE attrelid = to_regclass(quote_ident(name)) AND attnum > 0 AND NOT attisdropped
$$;

-- What a snapshot changed is written last, when all else is there.
CREATE FUNCTION duckicelake_check_renames() RETURNS trigger
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
        IF NOT renamed.lived THEN
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

CREATE TRIGGER duckicelake_check_renames AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made LIKE '%created_table:%') EXECUTE FUNCTION duckicelake_check_renames();
