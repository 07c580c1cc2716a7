"""Make a large lake of a served one: very many tables, columns, snapshots, files, changes and audit entries.

What is many is rows made in Postgres; each kind begins with what the server or DuckDB wrote. No data file of the large
table exists but its first one.
"""

from dataclasses import dataclass
from typing import Final

import duckdb
import psycopg
from duckdb_extensions import import_extension

from scripts.bench_job.client import Appender, LocalFiles, Rest
from scripts.bench_job.history import fill
from scripts.bench_job.servers import Bench

CROWD: Final = "crowd"
"""The namespace of most tables."""
OTHERS: Final = 20
COLUMNS: Final = 10
PER_MANIFEST: Final = 10_000
TABLES: Final = """
WITH number AS MATERIALIZED (
    SELECT i, s.schema_id, 1000000 + i AS table_id
    FROM generate_series(1::bigint, %(tables)s) i
    JOIN ducklake_schema s
      ON s.schema_name = CASE WHEN i %% 5 = 0 THEN 'other_' || i / 5 %% %(others)s ELSE %(crowd)s END
), made AS (
    INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path, path_is_relative)
    SELECT table_id, gen_random_uuid(), 0, schema_id, 'shipments_' || lpad(i::text, 6, '0'), 't' || i || '/', true
    FROM number
), columns AS (
    INSERT INTO ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, column_type,
        nulls_allowed)
    SELECT c, 0, table_id, c, CASE c WHEN 1 THEN 'id' ELSE 'measure_' || c || '_' || i %% 100 END, 'int64', true
    FROM number, generate_series(1, %(columns)s::bigint) c
), versions AS (
    INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id) SELECT 0, 0, table_id FROM number
), comments AS (
    INSERT INTO ducklake_column_tag (table_id, column_id, begin_snapshot, key, value)
    SELECT table_id, 2, 0, 'comment', 'What the ' || i || 'th scale says, in grams' FROM number
)
INSERT INTO ducklake_tag (object_id, begin_snapshot, key, value)
SELECT table_id, 0, 'comment', 'Shipments that left depot ' || i %% 1000 FROM number
"""
FILES: Final = """
WITH template AS (
    SELECT i.*, f.begin_snapshot, f.data_file_id, f.path AS own_path
    FROM duckicelake_file i JOIN ducklake_data_file f ON f.data_file_id = i.ducklake_id
    JOIN ducklake_table t ON t.table_id = i.table_id WHERE t.table_name = 'parcels' AND t.end_snapshot IS NULL
), number AS MATERIALIZED (SELECT i, 1000000000 + i AS file_id FROM generate_series(1::bigint, %(files)s - 1) i
), own AS (
    INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
        record_count, file_size_bytes, footer_size, row_id_start, partition_id)
    SELECT n.file_id, f.table_id, f.begin_snapshot, replace(f.path, '.parquet', '-' || i || '.parquet'),
           f.path_is_relative, f.file_format, 1000, 10000 + i * 7919 %% 100000000, f.footer_size, 1000 * i,
           f.partition_id
    FROM ducklake_data_file f JOIN template USING (data_file_id), number n
), parts AS (
    INSERT INTO ducklake_file_partition_value (data_file_id, table_id, partition_key_index, partition_value)
    SELECT n.file_id, table_id, 0, ('2020-01-01'::date + (i / 1000)::integer)::text FROM template, number n (i, file_id)
)
INSERT INTO duckicelake_file (table_id, file_id, ducklake_id, content, file_format, spec_id, path, partition,
    record_count, file_size_in_bytes, sequence_number, file_sequence_number, added_snapshot_id, metrics)
SELECT t.table_id, n.file_id, n.file_id, 0, t.file_format, t.spec_id,
       replace(t.path, '.parquet', '-' || i || '.parquet'),
       json_build_array(('2020-01-01'::date + (i / 1000)::integer)::text)::json, 1000, 10000 + i * 7919 %% 100000000,
       t.sequence_number, t.file_sequence_number, t.added_snapshot_id, t.metrics
FROM template t, number n (i, file_id)
"""
MANIFESTS: Final = """
WITH template AS (
    SELECT m.* FROM duckicelake_manifest m JOIN ducklake_table t USING (table_id)
    WHERE t.table_name = 'parcels' AND t.end_snapshot IS NULL
), packed AS (
    SELECT 1000000000 + (file_id %% 1000000000) / %(each)s AS manifest_id, array_agg(file_id ORDER BY file_id) AS added
    FROM duckicelake_file f JOIN template t USING (table_id) WHERE f.file_id <> ALL (t.added) GROUP BY 1
), made AS (
    INSERT INTO duckicelake_manifest (table_id, manifest_id, content, format_version, spec_id, schema_id,
        sequence_number, min_sequence_number, added_snapshot_id, added, existing, deleted)
    SELECT t.table_id, p.manifest_id, t.content, t.format_version, t.spec_id, t.schema_id, t.sequence_number,
           t.min_sequence_number, t.added_snapshot_id, p.added, '{}', '{}'
    FROM template t, packed p RETURNING manifest_id
), listed AS (
    UPDATE duckicelake_snapshot s
    SET manifest_ids = s.manifest_ids || (SELECT array_agg(manifest_id ORDER BY manifest_id) FROM made),
        summary = (s.summary::jsonb || jsonb_build_object('total-data-files', %(files)s::text))::json
    FROM template t WHERE s.table_id = t.table_id
), renewed AS (
    UPDATE duckicelake_table d SET version = d.version + 1 FROM template t WHERE d.table_id = t.table_id
)
DELETE FROM duckicelake_artifact a USING template t WHERE a.table_id = t.table_id
"""
CHANGES: Final = """
INSERT INTO duckicelake_change (snapshot_id, ordinal, at, kind, namespace, name, object_id, source, principal, facts)
SELECT 0, 1000 + i, now() - make_interval(secs => %(changes)s - i), 'append', 'bench', 'long', t.table_id, 'rest',
       'ana', '{"added-records": 5000}'
FROM generate_series(1, %(changes)s) i, ducklake_table t WHERE t.table_name = 'long' AND t.end_snapshot IS NULL
"""
AUDIT: Final = """
INSERT INTO duckicelake_audit (at, principal, address, request_id, operation, resource, result)
SELECT now() - make_interval(secs => %(entries)s - i), 'ana', '10.0.0.' || i %% 250, 'r' || i, 'commit_table',
       'bench.long', 'ok'
FROM generate_series(1, %(entries)s) i
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each. snapshots, changes and audit entries are as many."""

    tables: int = 10_000
    columns: int = 1_000
    snapshots: int = 100_000
    files: int = 1_000_000


def make_large(bench: Bench, size: Size) -> None:
    """Make tables `wide`, `long` and `parcels` in `bench`, and many others in `crowd` and `other_0` to `other_19`."""
    rest = Rest(bench.uri, bench.headers)
    for name in ("bench", CROWD, *(f"other_{number}" for number in range(OTHERS))):
        rest.create_namespace(name)
    rest.create_table("wide", columns=size.columns, properties={"comment": "One column for each sensor"})
    Appender(rest, LocalFiles(), "long", rest.create_table("long")).append()
    fill(bench, "long", size.snapshots)
    _write_first_file(bench)
    rest.load("parcels")
    address = bench.ducklake_attach.partition("ducklake:postgres:")[2].partition("'")[0]
    with psycopg.connect(address, autocommit=True) as connection:
        files = {"files": size.files, "each": PER_MANIFEST}
        connection.execute(TABLES, {"tables": size.tables, "others": OTHERS, "crowd": CROWD, "columns": COLUMNS})
        connection.execute(FILES, files)
        connection.execute(MANIFESTS, files)
        connection.execute(CHANGES, {"changes": size.snapshots})
        connection.execute(AUDIT, {"entries": size.snapshots})
        connection.execute("ANALYZE")
    rest.close()


def _write_first_file(bench: Bench) -> None:
    import_extension("ducklake")
    import_extension("postgres_scanner")
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.execute("LOAD ducklake; LOAD postgres_scanner")
        duck.execute(f"ATTACH '{bench.ducklake_attach}' AS lake")
        duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        duck.execute("CREATE TABLE lake.bench.parcels (day DATE, id BIGINT, grams BIGINT, depot VARCHAR)")
        duck.execute("ALTER TABLE lake.bench.parcels SET PARTITIONED BY (day)")
        duck.execute("INSERT INTO lake.bench.parcels SELECT DATE '2020-01-01', i, i * 3, 'north' FROM range(1000) r(i)")
