-- Tables that were served before files which DuckDB only added, and fields that are required, were examined: clients may
-- misread them. The first load of each examines what it has, and replaces or relaxes what is wrong.
CREATE TABLE duckicelake_unexamined (
    table_id bigint PRIMARY KEY
);

INSERT INTO duckicelake_unexamined
SELECT t.table_id FROM duckicelake_table t
WHERE t.metadata::text ~ '"(element-|value-)?required": ?true'
   OR EXISTS (SELECT FROM ducklake_data_file d WHERE d.table_id = t.table_id AND d.mapping_id IS NOT NULL);
