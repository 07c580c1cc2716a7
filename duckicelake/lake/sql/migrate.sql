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

-- have_digests: whether the catalog records what its migrations were
SELECT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = to_regclass('duckicelake_migration') AND attname = 'digest');

-- record_digests: of migrations that have none yet
UPDATE duckicelake_migration m SET digest = d.digest
FROM unnest(%(numbers)s::integer[], %(digests)s::text[]) AS d (number, digest)
WHERE m.number = d.number AND m.digest IS NULL;

-- digests: of the migrations applied so far, as they were applied
SELECT number, digest FROM duckicelake_migration WHERE digest IS NOT NULL;

-- schema: one line for each column, index, constraint, trigger, view and function of ours. Columns are in no order: those
-- of a lake that was repaired come last. Bodies of SQL functions without text are left out, as each version of Postgres
-- writes them its own way, and so is the body that depends on whether there are nested schemas
WITH ours AS (
    SELECT c.oid, c.relname::text AS name, c.relkind FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND starts_with(c.relname, 'duckicelake_')
), facts AS (
    SELECT concat_ws(' ', 'column', o.name, a.attname, format_type(a.atttypid, a.atttypmod),
                     CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'IDENTITY ' || nullif(a.attidentity::text, ''),
                     'GENERATED ' || nullif(a.attgenerated::text, ''),
                     'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid)) AS fact
    FROM ours o JOIN pg_attribute a ON a.attrelid = o.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = o.oid AND d.adnum = a.attnum
    WHERE o.relkind IN ('r', 'v')
    UNION ALL
    SELECT concat_ws(' ', 'constraint', o.name, c.conname, pg_get_constraintdef(c.oid))
    FROM ours o JOIN pg_constraint c ON c.conrelid = o.oid WHERE c.contype <> 'n'
    UNION ALL
    SELECT concat_ws(' ', 'index', pg_get_indexdef(o.oid), CASE WHEN NOT i.indisvalid THEN 'INVALID' END)
    FROM ours o JOIN pg_index i ON i.indexrelid = o.oid
    UNION ALL
    SELECT concat_ws(' ', 'trigger', pg_get_triggerdef(t.oid), t.tgenabled)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = current_schema()::regnamespace AND starts_with(t.tgname, 'duckicelake_')
    UNION ALL
    SELECT concat_ws(' ', CASE o.relkind WHEN 'S' THEN 'sequence' ELSE 'view' END, o.name)
    FROM ours o WHERE o.relkind IN ('S', 'v')
    UNION ALL
    SELECT concat_ws(' ', 'function', p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
                     p.provolatile, p.proparallel, p.proisstrict, p.prosecdef, array_to_string(p.proconfig, '; '),
                     CASE WHEN p.proname <> 'duckicelake_schemas' THEN md5(p.prosrc) END)
    FROM pg_proc p
    WHERE p.pronamespace = current_schema()::regnamespace AND starts_with(p.proname, 'duckicelake_')
)
SELECT regexp_replace(replace(fact, quote_ident(current_schema()) || '.', ''),
                      'search_path=' || quote_ident(current_schema()) || ',', 'search_path=,')
FROM facts ORDER BY fact COLLATE "C";

-- limit_waits: for tables in use. Whoever reads such a table later waits behind a migration that waits
SET LOCAL lock_timeout = '500ms';

-- blockers: sessions whose transactions have held tables for the longest time
SELECT a.pid, a.usename, coalesce(nullif(a.application_name, ''), 'unnamed program')
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'relation' AND l.granted)
ORDER BY a.xact_start
LIMIT 3;
