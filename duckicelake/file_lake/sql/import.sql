-- exists: whether an import has begun in this schema. to_regclass would not see that it has ended since BEGIN
SELECT EXISTS (
    SELECT FROM pg_class WHERE relname = 'duckicelake_import' AND relnamespace = current_schema()::regnamespace);

-- begin: the tables of an import. Postgres has a lake only once ducklake_metadata has its name
ALTER TABLE ducklake_metadata RENAME TO duckicelake_import_metadata;
CREATE TABLE duckicelake_import_source (file text NOT NULL, fingerprint text NOT NULL);
CREATE TABLE duckicelake_import (
    table_name text    PRIMARY KEY,
    target     text    NOT NULL,
    next_row   bigint  NOT NULL DEFAULT 0,
    copied     bigint  NOT NULL DEFAULT 0,
    is_done    boolean NOT NULL DEFAULT false
);

-- insert_source: which file the import reads
INSERT INTO duckicelake_import_source VALUES (%(file)s, %(fingerprint)s);

-- insert_table: a table to copy
INSERT INTO duckicelake_import (table_name, target) VALUES (%(table_name)s, %(target)s);

-- source: which file the import reads
SELECT file, fingerprint FROM duckicelake_import_source;

-- tables: how far each table is copied
SELECT table_name, target, copied, is_done FROM duckicelake_import;

-- progress: how far a table is copied
SELECT target, next_row, is_done FROM duckicelake_import WHERE table_name = %(table_name)s;

-- advance: record a copied part
UPDATE duckicelake_import SET next_row = %(next_row)s, copied = copied + %(rows)s, is_done = %(is_done)s
WHERE table_name = %(table_name)s;

-- is_imported: whether the lake has these snapshots, and no side tables yet
SELECT to_regclass('duckicelake_migration') IS NULL
   AND (SELECT schema_uuid::text FROM ducklake_schema ORDER BY schema_id LIMIT 1) = %(first_schema)s
   AND (SELECT (max(snapshot_id), count(*)) = (%(newest)s, %(count)s) FROM ducklake_snapshot);

-- leave_out: inlined tables without rows that Postgres can't have
DELETE FROM ducklake_inlined_data_tables WHERE table_name = ANY (%(names)s);

-- set_data_path: where the files of the lake are
UPDATE duckicelake_import_metadata SET value = %(data_path)s WHERE key = 'data_path' AND scope IS NULL;

-- finish: from now on there is a lake
ALTER TABLE duckicelake_import_metadata RENAME TO ducklake_metadata;
DROP TABLE duckicelake_import, duckicelake_import_source;

-- discard: the tables that an import made
SELECT c.relname::text FROM pg_class c
WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
  AND (starts_with(c.relname, 'duckicelake_import') OR c.relname IN (SELECT target FROM duckicelake_import));
