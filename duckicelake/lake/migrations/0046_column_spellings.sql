-- A DuckDB 2.0 that was attached before a migration goes on making tables of inlined rows with the column names of
-- DuckLake 1.0. Those that attach later can insert into such a table, but neither read nor flush it. So it isn't made.

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION duckicelake_check_spelling() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    format text := (SELECT value FROM ducklake_metadata WHERE key = 'version' AND scope IS NULL);
BEGIN
    IF format <> '1.0' AND EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = to_regclass(quote_ident(NEW.table_name)) AND attnum = 1 AND attname = 'row_id') THEN
        RAISE EXCEPTION 'The lake was migrated to DuckLake % after this client had attached it. Nothing was changed. DETACH '
            'the lake, ATTACH it and try again. DuckDB 1.5 can''t attach it any more (docs/ducklake-versions.md)', format;
    END IF;
    RETURN NULL;
END $$;

-- Deferred, as the table may be made after its row.
CREATE CONSTRAINT TRIGGER duckicelake_check_spelling AFTER INSERT ON ducklake_inlined_data_tables
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION duckicelake_check_spelling();
