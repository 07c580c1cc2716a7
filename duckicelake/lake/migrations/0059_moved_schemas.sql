-- A renamed namespace is another schema of DuckLake: the old one ends, and keeps its name in all older snapshots. What was
-- dropped from it before can still be brought back. This says into which namespace.
CREATE TABLE duckicelake_moved_schema (
    schema_id bigint PRIMARY KEY,
    name      text   NOT NULL -- the full name that its dropped tables and views go by
);

-- DuckDB reads inlined rows with the tables of the snapshot at which their columns began, though that has expired, and
-- fails where one of them is in a schema that has no row. Its expiry deletes the rows of ended schemas. One that a table,
-- view or macro was in, which is elsewhere now, stays as long as that has a row.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

CREATE FUNCTION duckicelake_keep_left_schema() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (
        SELECT FROM ducklake_table l JOIN ducklake_table t ON t.table_id = l.table_id AND t.schema_id <> l.schema_id
        WHERE l.schema_id = OLD.schema_id
        UNION ALL
        SELECT FROM ducklake_view l JOIN ducklake_view v ON v.view_id = l.view_id AND v.schema_id <> l.schema_id
        WHERE l.schema_id = OLD.schema_id
        UNION ALL
        SELECT FROM ducklake_macro l JOIN ducklake_macro m ON m.macro_id = l.macro_id AND m.schema_id <> l.schema_id
        WHERE l.schema_id = OLD.schema_id
    ) THEN
        RETURN NULL;
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER duckicelake_keep_left_schema BEFORE DELETE ON ducklake_schema
FOR EACH ROW EXECUTE FUNCTION duckicelake_keep_left_schema();
