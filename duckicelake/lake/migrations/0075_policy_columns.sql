-- Policies of fields at any depth, and conditions that read as columns are called now.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The full name of a column or field, as `person.email`, as it is now or was last; null if DuckLake has forgotten it.
CREATE FUNCTION duckicelake_column_name(of_table bigint, of_column bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
    WITH RECURSIVE path (parent, name) AS (
        (SELECT c.parent_column, c.column_name::text FROM ducklake_column c
         WHERE c.table_id = of_table AND c.column_id = of_column
         ORDER BY c.end_snapshot IS NULL DESC, c.begin_snapshot DESC LIMIT 1)
        UNION ALL
        SELECT above.parent_column, above.column_name || '.' || p.name FROM path p
        CROSS JOIN LATERAL (
            SELECT c.parent_column, c.column_name FROM ducklake_column c
            WHERE c.table_id = of_table AND c.column_id = p.parent
            ORDER BY c.end_snapshot IS NULL DESC, c.begin_snapshot DESC LIMIT 1
        ) above
    )
    SELECT name FROM path WHERE parent IS NULL
$$;

-- The ids of the columns that a condition names, by the names that it has for them, in lower case.
ALTER TABLE duckicelake_policy ADD COLUMN condition_columns jsonb;
