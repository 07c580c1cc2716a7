-- Live data files that a task couldn't read: missing, damaged, encrypted. For a day no plan has a task tried again for them.
CREATE TABLE duckicelake_unreadable_file (
    data_file_id bigint      PRIMARY KEY,  -- DuckLake's
    table_id     bigint      NOT NULL,
    noted        timestamptz NOT NULL
);
CREATE INDEX duckicelake_unreadable_file_table ON duckicelake_unreadable_file (table_id);
