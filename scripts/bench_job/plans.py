"""How Postgres looks things up for a load and a commit where 10,000 tables list 1,000,000 snapshots: plans and times.

The rows are made in Postgres, a hundred snapshots with a list, a manifest and a file for each table. Every statement is
shown with its plan and the time that it took; one that reads a whole table of a million rows is a miss.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from duckicelake.postgres.queries import Transaction, load_queries
from scripts.bench_job.embedded import embedded_lake
from scripts.bench_job.results import Result, Target, options_of, report

TABLES: Final = """
INSERT INTO ducklake_table
SELECT i, gen_random_uuid(), 1, NULL, 0, 't' || i, 't' || i || '/', true FROM generate_series(1::bigint, %(tables)s) i;
INSERT INTO duckicelake_table (table_id, table_uuid, location, version, caught_up_to, epoch, ducklake_id,
    format_version, last_sequence_number, next_row_id, last_updated_ms, current_snapshot_id, metadata)
SELECT table_id, table_uuid, '/w/data/main/t' || table_id, %(each)s, %(tables)s::bigint * %(each)s, 0, 1, 2, %(each)s,
       0, 0, NULL, '{}'
FROM ducklake_table;
"""
ROWS: Final = """
CREATE TEMP TABLE made AS
SELECT i, 1 + (i - 1) %% %(tables)s AS table_id FROM generate_series(1::bigint, %(tables)s::bigint * %(each)s) i;
INSERT INTO ducklake_snapshot SELECT i, now(), 0, 1, i FROM made;
INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
SELECT i, 'inserted_into_table:' || table_id FROM made;
INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
    record_count, file_size_bytes, row_id_start)
SELECT i, table_id, i, 'ducklake-' || i || '.parquet', true, 'parquet', 1000, 100000, 0 FROM made;
INSERT INTO duckicelake_snapshot (table_id, snapshot_id, ducklake_id, parent_snapshot_id, sequence_number, timestamp_ms,
    schema_id, summary, manifest_ids)
SELECT table_id, i, i, NULL, 1, i, 0, '{"operation": "append"}', ARRAY[i] FROM made;
INSERT INTO duckicelake_snapshot_log (table_id, ordinal, snapshot_id, timestamp_ms) SELECT table_id, i, i, i FROM made;
INSERT INTO duckicelake_manifest (manifest_id, table_id, content, format_version, spec_id, schema_id, sequence_number,
    min_sequence_number, added_snapshot_id, added, existing, deleted)
SELECT i, table_id, 0, 2, 0, 0, 1, 1, i, ARRAY[i], '{}', '{}' FROM made;
INSERT INTO duckicelake_file (file_id, table_id, content, path, file_format, spec_id, partition, record_count,
    file_size_in_bytes, added_snapshot_id, sequence_number, file_sequence_number, metrics, ducklake_id)
SELECT i, table_id, 0, '/w/ducklake/main/t' || table_id || '/ducklake-' || i || '.parquet', 'PARQUET', 0, '[]', 1000,
       100000, i, 1, 1, '{}', i FROM made;
INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms)
SELECT table_id, 'manifest-list', i, '/w/data/main/t' || table_id || '/metadata/snap-' || i || '.avro', 100, '', 0
FROM made;
"""
BIG: Final = (
    "ducklake_snapshot",
    "ducklake_snapshot_changes",
    "ducklake_data_file",
    "duckicelake_snapshot",
    "duckicelake_snapshot_log",
    "duckicelake_manifest",
    "duckicelake_file",
    "duckicelake_artifact",
)
MOST_MS: Final = 20.0


def main() -> None:
    options = options_of(__doc__, tables=(10_000, "how many tables"), each=(100, "snapshots of each"))
    tables = options.tables // 10 if options.quick else options.tables
    with embedded_lake() as lake:
        with lake.services.database.transaction() as cursor:
            for statement in (TABLES + ROWS).split(";\n"):
                if statement.strip():
                    cursor.execute(statement, {"tables": tables, "each": options.each})
        with lake.services.database.statement() as cursor:
            cursor.execute("VACUUM ANALYZE")
        with lake.services.database.reading() as cursor:
            results = list(explained(cursor, tables, options.each))
    title = f"Statements on {tables * options.each:,} snapshots of {tables:,} tables, by Postgres itself"
    report(title, results, options)


def asked(table: int, tables: int, each: int) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Statements by what they are for, with what they would be asked about a table in the midst."""
    state, native, write = load_queries("lake", "state"), load_queries("lake", "native"), load_queries("lake", "write")
    ownership, garbage = load_queries("lake", "ownership"), load_queries("lake", "garbage")
    clones = load_queries("lake", "clones")
    newest = tables * each
    ids = [table + number * tables for number in range(each)]
    of = {"table_id": table}
    folder = f"/w/ducklake/main/t{table}/"
    paths = [f"{folder}ducklake-{number}.parquet" for number in ids]
    window = {**of, "after": newest - 10, "upto": newest, "begins": [1], "mark": f":{table}", "live": ids, "prefix": ""}
    window |= {"first": newest - 9, "last": newest}
    return {
        "table by name": (state.table_id, {"schema_name": "main", "table_name": f"t{table}"}),
        "table's row": (state.table_row, of),
        "newest snapshot": (native.newest, {}),
        "snapshots, all": (state.snapshots, {**of, "after": -1}),
        "snapshots, the newest": (state.snapshots, {**of, "after": ids[-2]}),
        "how many snapshots, and the first": (state.snapshot_extent, of),
        "snapshot log, all": (state.snapshot_log, {**of, "most": None}),
        "snapshot log, its end": (state.snapshot_log, {**of, "most": 2}),
        "snapshot log, its extent": (state.log_extent, of),
        "metadata log": (state.metadata_log, {**of, "version": each, "most": 101}),
        "manifests": (state.manifests, {"manifest_ids": ids[-10:]}),
        "entries": (state.entries, {"manifest_ids": ids[-10:]}),
        "how far DuckLake is, and overdue snapshots": (state.standing, of),
        "expired snapshots": (state.expired, of),
        "changes of DuckDB's": (native.changes, window),
        "what the window's files are numbered": (native.ground, window),
        "data files of the window": (native.data_files, window),
        "data files that vanished": (native.missing_data_files, window),
        "lock of the table": (write.lock_bases, {"table_ids": [table], "after": newest - 10}),
        "whose files these are": (ownership.files, {"table_id": None, "paths": paths}),
        "whose files are below a folder": (
            ownership.files_below,
            {"table_id": None, "folder": f"file://{folder[:-1]}"},
        ),
        "files that nothing names": (garbage.unnamed, {"names": [path.removeprefix(folder) for path in paths]}),
        "data files at paths": (state.data_files_at, {**of, "paths": paths}),
        "tables that have these files": (state.sharing, {"paths": paths}),
        "the table's next folder": (load_queries("lake", "file_folders").next_place, {**of, "least": ""}),
        "whether files are shared": (clones.shares, of),
        "files that a purge takes": (write.purgeable, of),
        "rows that hold files": (write.forget_held, {**of, "paths": paths}),
        "snapshots that leave": (write.delete_snapshots, {**of, "snapshot_ids": ids[:5]}),
    }


def explained(cursor: Transaction, tables: int, each: int) -> Iterator[Result]:
    for name, (statement, parameters) in asked(tables // 2, tables, each).items():
        writes = "DELETE FROM" in statement or "FOR UPDATE" in statement
        how = "EXPLAIN" if writes else "EXPLAIN (ANALYZE)"
        plan = [line for (line,) in cursor.execute(f"{how} {statement}", parameters).fetchall()]
        print(f"-- {name}", *plan, "", sep="\n")
        scans = [found for line in plan for found in re.findall(r"Seq Scan on (\w+)", line) if found in BIG]
        took = [float(found) for line in plan for found in re.findall(r"Execution Time: ([\d.]+) ms", line)]
        line = f"{name}{f', reads all of {scans[0]}' if scans else ''}"
        yield Result(line, float("nan") if scans else sum(took), "ms", Target("≤", MOST_MS))


if __name__ == "__main__":
    main()
