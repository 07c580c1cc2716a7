-- How many tables and namespaces a lake may have; null: any number. DuckDB's and Iceberg's transactions are held to it alike.
ALTER TABLE duckicelake_lake ADD COLUMN max_tables bigint CHECK (max_tables >= 0);
ALTER TABLE duckicelake_lake ADD COLUMN max_namespaces bigint CHECK (max_namespaces >= 0);

-- Functions below keep the search path of this moment: DuckDB and pg_restore run them under another.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- A snapshot that leaves more than may be is refused, unless there were as many before it. What a snapshot changed is
-- written last, and only one transaction can write a snapshot's id, so that the counts are those at its COMMIT. Each lake
-- begins with the namespace main, which doesn't count.
CREATE FUNCTION duckicelake_check_limits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    lake duckicelake_lake := (SELECT l FROM duckicelake_lake l);
    before bigint;
    now bigint;
BEGIN
    IF lake.max_tables IS NOT NULL THEN
        SELECT count(*) FILTER (WHERE end_snapshot IS NULL),
               count(*) FILTER (WHERE begin_snapshot < NEW.snapshot_id AND (end_snapshot IS NULL OR end_snapshot >= NEW.snapshot_id))
        INTO now, before FROM ducklake_table;
        IF now > lake.max_tables AND now > before THEN
            RAISE EXCEPTION 'The warehouse may have % tables (max-tables), and has %: this would make it %',
                lake.max_tables, before, now USING ERRCODE = 'DIQU1';
        END IF;
    END IF;
    IF lake.max_namespaces IS NOT NULL THEN
        SELECT count(*) FILTER (WHERE end_snapshot IS NULL),
               count(*) FILTER (WHERE begin_snapshot < NEW.snapshot_id AND (end_snapshot IS NULL OR end_snapshot >= NEW.snapshot_id))
        INTO now, before FROM duckicelake_schemas() WHERE schema_name <> 'main';
        IF now > lake.max_namespaces AND now > before THEN
            RAISE EXCEPTION 'The warehouse may have % namespaces (max-namespaces), and has %: this would make it %',
                lake.max_namespaces, before, now USING ERRCODE = 'DIQU1';
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER duckicelake_check_limits AFTER INSERT ON ducklake_snapshot_changes
FOR EACH ROW WHEN (NEW.changes_made ~ 'created_(table|schema):') EXECUTE FUNCTION duckicelake_check_limits();
