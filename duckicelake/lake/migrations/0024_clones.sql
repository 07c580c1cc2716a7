-- Clones share the files of their source: DuckLake's and our rows count the references, and a file goes with the last.

-- Tables that say `gc.enabled=false` because the server said so for them, as they share files: Iceberg's engines delete
-- none then, and the server deletes those that no other table names. Where a table says so by itself, nobody does.
CREATE TABLE duckicelake_guard (table_id bigint PRIMARY KEY);

-- Where files lie that a clone shares, canonical and ending in /: places of tables that it came from, directly or not.
CREATE TABLE duckicelake_shared_place (
    table_id bigint NOT NULL,
    prefix   text   NOT NULL,
    PRIMARY KEY (table_id, prefix)
);
