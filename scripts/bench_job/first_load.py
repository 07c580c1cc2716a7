"""The first load of a table of 100,000 data files that DuckDB wrote, and a load after it by a server that just started.

The rows of the files are made in Postgres, as DuckDB would leave them, with the statistics of every column. The
reference is what fastavro alone takes for as many manifest entries of the same content, on one core, divided by the
number of cores, up to two. The last lines are what an insert or a delete of DuckDB's in the big table costs the next
load, and what one in a table of 100 files does.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Final

import duckdb
import fastavro

from duckicelake.catalog.context.cache import TableCache, TableVersion
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.manifest.entry import DataFile
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.schema import build_manifest_schema
from duckicelake.iceberg.types import StructType
from scripts.bench_job.embedded import Embedded, embedded_lake
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report

FILL: Final = """
WITH base AS (
    SELECT t.table_id, s.snapshot_id, s.next_file_id, s.schema_version, s.next_catalog_id, r.next_row_id
    FROM ducklake_table t JOIN ducklake_table_stats r USING (table_id),
         (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) s
    WHERE t.table_name = %(table)s
), number AS MATERIALIZED (SELECT i FROM generate_series(0::bigint, %(files)s - 1) i
), made AS (
    INSERT INTO ducklake_snapshot
    SELECT snapshot_id + 1, now(), schema_version, next_catalog_id, next_file_id + %(files)s FROM base
), said AS (
    INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
    SELECT snapshot_id + 1, 'inserted_into_table:' || table_id FROM base
), files AS (
    INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, file_format,
        record_count, file_size_bytes, footer_size, row_id_start)
    SELECT next_file_id + i, table_id, snapshot_id + 1, 'ducklake-' || gen_random_uuid() || '.parquet', true, 'parquet',
           1000, 100000, 500, next_row_id + 1000 * i
    FROM base, number
), statistics AS (
    INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes, value_count,
        null_count, min_value, max_value)
    SELECT next_file_id + i, table_id, c, 9000, 1000, 0, (1000 * i)::text, (1000 * i + 999)::text
    FROM base, number, generate_series(1, %(columns)s) c
)
UPDATE ducklake_table_stats r
SET record_count = record_count + 1000 * %(files)s, next_row_id = r.next_row_id + 1000 * %(files)s
FROM base WHERE r.table_id = base.table_id
"""


def main() -> None:
    options = options_of(__doc__, files=(100_000, "how many files"), columns=(5, "columns with statistics"))
    files = options.files // 10 if options.quick else options.files
    report("Big tables", list(loads(files, options.columns)), options)


def loads(files: int, columns: int) -> Iterator[Result]:
    with embedded_lake() as lake, lake.duckdb(inlining=False) as duck:
        for table in ("big", "small"):
            names = [f"c{number}" for number in range(1, columns + 1)]
            duck.execute(f"CREATE TABLE {table} ({', '.join(f'{name} BIGINT' for name in names)})")
            duck.execute(f"INSERT INTO {table} SELECT {', '.join('-i' for _ in names)} FROM range(1, 11) r(i)")
            loaded(lake, table)
        fill(lake, "small", 100, columns)
        loaded(lake, "small")
        fill(lake, "big", files, columns)
        seconds, cpu, big = loaded(lake, "big")
        cores = min(2, os.cpu_count() or 1)
        alone = encoded_by_fastavro(lake, big) / cores
        line = f"first load of {files:,} files, statistics of {columns} columns"
        yield Result(line, seconds, "s", Target("≤", 1.5, "ratio"), alone, f"s fastavro on {cores} cores")
        yield Result("the same, CPU of the server", cpu, "s")
        cold = [1000 * loaded(replace_cache(lake), "big")[0] for _ in range(20)]
        yield Result(f"cold load of {files:,} files", p50(cold), "ms", Target("≤", 50), p50=p50(cold), p99=p99(cold))
        insert = f"INSERT INTO {{table}} SELECT {', '.join('i' for _ in range(columns))} FROM range(10) r(i)"
        yield after(lake, duck, insert, f"load after an insert of DuckDB's, {files:,} files against 100")
        delete = "DELETE FROM {table} WHERE c1 = -{number}"
        yield after(lake, duck, delete, f"load after a delete of DuckDB's, {files:,} files against 100")


def after(lake: Embedded, duck: duckdb.DuckDBPyConnection, statement: str, line: str) -> Result:
    """What loads after such statements take."""
    took: dict[str, list[float]] = {"small": [], "big": []}
    for number in range(1, 8):
        for table, found in took.items():
            duck.execute(statement.format(table=table, number=number))
            found.append(1000 * loaded(lake, table)[0])
    big, small = p50(took["big"]), p50(took["small"])
    return Result(line, big, "ms", Target("≤", 1.3, "ratio"), small, "ms with 100", big, p99(took["big"]))


def fill(lake: Embedded, table: str, files: int, columns: int) -> None:
    """Let DuckDB have inserted so many files in one commit."""
    with lake.services.database.transaction() as cursor:
        cursor.execute(FILL, {"table": table, "files": files, "columns": columns})
    with lake.services.database.statement() as cursor:
        cursor.execute("ANALYZE")


def loaded(lake: Embedded, table: str) -> tuple[float, float, TableVersion]:
    """(seconds, CPU seconds of this process, the table)."""
    before, cpu = time.perf_counter(), time.process_time()
    found = load_current_table(lake.services, ("main",), table)
    return time.perf_counter() - before, time.process_time() - cpu, found


def replace_cache(lake: Embedded) -> Embedded:
    """The lake as a server sees it that just started."""
    return replace(lake, services=replace(lake.services, cache=TableCache()))


def encoded_by_fastavro(lake: Embedded, table: TableVersion) -> float:
    """Seconds for the entries of all manifests of the current snapshot."""
    current = table.metadata.current_snapshot()
    assert current is not None
    assert current.manifest_list is not None
    lines = read_manifest_list(lake.services.store.read(current.manifest_list))
    entries = [e for line in lines for e in read_manifest(lake.services.store.read(line.manifest_path)).entries]
    records = [
        {
            "status": int(entry.status),
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.sequence_number,
            "file_sequence_number": entry.file_sequence_number,
            "data_file": record(entry.data_file),
        }
        for entry in entries
    ]
    schema = fastavro.parse_schema(build_manifest_schema(2, StructType.model_construct(fields=())))
    before = time.perf_counter()
    fastavro.writer(BytesIO(), schema, records, codec="deflate")
    return time.perf_counter() - before


def record(file: DataFile) -> dict[str, object]:
    maps = ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds")
    pairs = {name: getattr(file, name) for name in maps}
    return {
        "content": int(file.content),
        "file_path": file.file_path,
        "file_format": file.file_format,
        "partition": {},
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        **{
            name: [{"key": key, "value": value} for key, value in (found or {}).items()]
            for name, found in pairs.items()
        },
    }


if __name__ == "__main__":
    main()
