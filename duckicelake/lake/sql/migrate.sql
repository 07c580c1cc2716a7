-- exists: whether duckicelake has ever migrated this catalog
SELECT to_regclass('duckicelake_migration') IS NOT NULL;

-- create_table: where applied migrations are recorded
CREATE TABLE IF NOT EXISTS duckicelake_migration (
    number     integer     PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- applied: numbers of the migrations applied so far
SELECT number FROM duckicelake_migration;

-- record: note a migration as applied
INSERT INTO duckicelake_migration (number, name) VALUES (%(number)s, %(name)s);
