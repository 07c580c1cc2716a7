"""Plans of scans of a table of 1,000,000 files with 30 columns and a partition a day, made from the catalog's rows.

The files' rows are made in Postgres; no data file exists, and no plan opens one. A thousand files match each filter,
whatever the number of files, and lie in all manifests for the unclustered one. Times are CPU: of this process, in which
the server's use cases run without HTTP and Postgres, and no answer is kept; then of a server over HTTP (`plan_server`).
The references are local plans of the same scans from manifests that the server wrote: PyIceberg's in this process, and
those of Iceberg's Java library, CPU of its JVM.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pyiceberg.expressions import BooleanExpression, EqualTo
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.scan_cache import ScanCache, SizedCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_explanation import ExplainQuery, explain_table_scan
from duckicelake.catalog.scan_plans import plan_table_scan
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.rest import PlanTableScanRequest
from scripts.bench_job.embedded import Embedded, bench_folder, embedded_lake
from scripts.bench_job.java_plans import java_plans
from scripts.bench_job.plan_server import WARM_VALUES, measure_server, peak_memory
from scripts.bench_job.results import Result, Target, options_of, report

COLUMNS: Final = 30
MATCHING: Final = 1_000
PER_MANIFEST: Final = 10_000
FILES: Final = """
WITH template AS (
    SELECT f.*, f.metrics::jsonb #- '{lower_bounds,1}' #- '{upper_bounds,1}' AS said
    FROM duckicelake_file f JOIN ducklake_table t USING (table_id)
    WHERE t.table_name = %(table)s AND t.end_snapshot IS NULL
), said AS (
    SELECT t.table_id, t.path, regexp_split_to_array(jsonb_set(jsonb_set(said,
        '{lower_bounds,2}', '"@"'), '{upper_bounds,2}', '"@"')::text, '@') AS parts FROM template t
), number AS (
    SELECT i, i %% %(groups)s AS v FROM generate_series(0::bigint, %(files)s - 1) i
)
INSERT INTO duckicelake_file (table_id, file_id, ducklake_id, content, file_format, spec_id, path, partition,
    record_count, file_size_in_bytes, sequence_number, file_sequence_number, added_snapshot_id, metrics)
SELECT t.table_id, 1000000000 + t.table_id * 10000000 + i, NULL, 0, t.file_format, t.spec_id,
       replace(t.path, '.parquet', '-' || i || '.parquet'),
       json_build_array(('2020-01-01'::date + (i / %(matching)s)::integer)::text)::json, 1000, 100000,
       t.sequence_number, t.file_sequence_number, t.added_snapshot_id,
       (s.parts[1] || h.hex || s.parts[2] || h.hex || s.parts[3])::json
FROM template t JOIN said s USING (table_id), number,
     LATERAL (SELECT lpad(to_hex(v & 255), 2, '0') || lpad(to_hex((v >> 8) & 255), 2, '0')
                     || lpad(to_hex((v >> 16) & 255), 2, '0') || '0000000000' AS hex) h
"""
MANIFESTS: Final = """
WITH template AS (
    SELECT m.* FROM duckicelake_manifest m JOIN ducklake_table t USING (table_id)
    WHERE t.table_name = %(table)s AND t.end_snapshot IS NULL
), packed AS (
    SELECT t.table_id, 1000000000 + t.table_id * 10000 + (i / %(each)s) AS manifest_id,
           array_agg(1000000000 + t.table_id * 10000000 + i ORDER BY i) AS added
    FROM template t, generate_series(0::bigint, %(files)s - 1) i GROUP BY 1, 2
), made AS (
    INSERT INTO duckicelake_manifest (table_id, manifest_id, content, format_version, spec_id, schema_id,
        sequence_number, min_sequence_number, added_snapshot_id, added, existing, deleted)
    SELECT t.table_id, p.manifest_id, t.content, t.format_version, t.spec_id, t.schema_id, t.sequence_number,
           t.min_sequence_number, t.added_snapshot_id, p.added, '{}', '{}'
    FROM template t JOIN packed p USING (table_id) RETURNING table_id, manifest_id
), listed AS (
    UPDATE duckicelake_snapshot s SET manifest_ids = (SELECT array_agg(manifest_id ORDER BY manifest_id) FROM made)
    WHERE s.table_id = (SELECT table_id FROM template)
)
DELETE FROM duckicelake_artifact a USING template t WHERE a.table_id = t.table_id
"""


def main() -> None:
    options = options_of(__doc__, files=(1_000_000, "how many files"))
    files = options.files // 20 if options.quick else options.files
    report("Scan planning", list(measure(files)), options)


def measure(files: int) -> Iterator[Result]:
    with embedded_lake() as lake, bench_folder() as folder:
        started = time.monotonic()
        make(lake, "big", files)
        make(lake, "small", min(files, PER_MANIFEST))
        yield Result(f"make {files:,} files and write their manifests", time.monotonic() - started, "s")
        yield from measure_first(lake)
        services = fresh(lake.services)
        load_current_table(services, ("main",), "big")
        spent = cpu_ms(lambda: plan(services, "big", UNCLUSTERED))
        yield Result("first plan after a restart", spent, "ms CPU", Target("≤", 300))
        warm = {
            "unclustered filter": warm_ms(lambda: plan(services, "big", UNCLUSTERED)),
            "one partition": warm_ms(lambda: plan(services, "big", ONE_DAY)),
        }
        small = warm_ms(lambda: plan(services, "small", UNCLUSTERED))
        line = f"unclustered filter, {files:,} files against {min(files, PER_MANIFEST):,}"
        yield Result(line, warm["unclustered filter"], "ms CPU", Target("≤", 1.5, "ratio"), small, "ms CPU")
        yield Result("bytes cached", services.scans.nbytes / 1e6, "MB")
        yield from measure_explanation(lake)
        yield from compare(lake, warm)
        yield from measure_server(lake, Path(folder, "lake"), max(2 * WARM_VALUES, files // MATCHING))


def measure_first(lake: Embedded) -> Iterator[Result]:
    """Measure the plan that reads the metrics of all files."""
    services = fresh(lake.services)
    with peak_memory(os.getpid()) as taken:
        spent = cpu_ms(lambda: plan(services, "big", UNCLUSTERED))
    yield Result("first plan ever: unclustered filter", spent / 1e3, "s CPU")
    yield Result("memory that it took", taken[0], "MB", Target("≤", 200))


def measure_explanation(lake: Embedded) -> Iterator[Result]:
    services, query = fresh(lake.services), ExplainQuery("c2 = 7")
    with peak_memory(os.getpid()) as taken:
        spent = cpu_ms(lambda: explain_table_scan(services, ("main",), "big", query))
    yield Result("explanation of the unclustered filter", spent, "ms CPU", Target("≤", 1_000))
    yield Result("memory that it took", taken[0], "MB", Target("≤", 250))


def compare(lake: Embedded, warm: Mapping[str, float]) -> Iterator[Result]:
    """Compare warm plans of the server with those that libraries make by themselves. warm: ms of CPU."""
    location = load_current_table(fresh(lake.services), ("main",), "big").location
    filters = {"unclustered filter": ("c2", 7), "one partition": ("day", "2020-01-02")}
    targets = {"unclustered filter": (50, 1 / 20), "one partition": (20, None)}
    for line, (column, value) in filters.items():
        reference = pyiceberg_ms(location, EqualTo(column, value))  # type: ignore[call-arg, arg-type]
        yield Result(line, warm[line], "ms CPU", Target("≤", targets[line][0]), reference, "ms PyIceberg")
    with java_plans(location) as java:
        for line, (column, value) in filters.items():
            cold = java.cpu_ms(column, value)
            java.cpu_ms(column, value, 3)
            share = targets[line][1]
            target = Target("≤", share, "ratio") if share else None
            yield Result(line, warm[line], "ms CPU", target, java.cpu_ms(column, value, 7), "ms Java, warm")
            yield Result(line, warm[line], "ms CPU", None, cold, "ms Java, its first")
        yield Result("all files, planned by Java", java.cpu_ms() / 1e3, "s CPU")


UNCLUSTERED: Final = {"type": "eq", "term": "c2", "value": 7}
ONE_DAY: Final = {"type": "eq", "term": "day", "value": "2020-01-02"}


def make(lake: Embedded, table: str, files: int) -> None:
    """Make the table, and load it, which writes its manifests."""
    with lake.duckdb(inlining=False) as duck:
        columns = ", ".join(f"c{number} BIGINT" for number in range(2, COLUMNS + 1))
        duck.execute(f"CREATE TABLE {table} (day DATE, {columns})")
        duck.execute(f"ALTER TABLE {table} SET PARTITIONED BY (day)")
        values = ", ".join("7" for _ in range(2, COLUMNS + 1))
        duck.execute(f"INSERT INTO {table} SELECT DATE '2020-01-01', {values} FROM range(1000)")
    load_current_table(fresh(lake.services), ("main",), table)
    parameters = {
        "table": table,
        "files": files,
        "groups": max(1, files // MATCHING),
        "matching": MATCHING,
        "each": PER_MANIFEST,
    }
    with lake.services.database.transaction() as cursor:
        cursor.execute(FILES, parameters)
        cursor.execute(MANIFESTS, parameters)
    with lake.services.database.statement() as cursor:
        cursor.execute("ANALYZE duckicelake_file, duckicelake_manifest")
    load_current_table(fresh(lake.services), ("main",), table)


def fresh(services: Services) -> Services:
    """A server that has just started, and keeps no answers."""
    scans: ScanCache = ScanCache()
    scans.answers = SizedCache(0)
    return replace(services, cache=TableCache(8, 1 << 40), scans=scans)


def plan(services: Services, table: str, wanted: Any) -> None:
    body = json.dumps({"filter": wanted}).encode()
    request = PlanTableScanRequest.model_validate_json(body)
    answer = plan_table_scan(services, ("main",), table, request, body, "bench")
    assert answer.count(b'{"data-file":') == MATCHING, answer[:1000]


def cpu_ms(act: Callable[[], object]) -> float:
    before = time.process_time()
    act()
    return (time.process_time() - before) * 1e3


def warm_ms(act: Callable[[], object], times: int = 7) -> float:
    """The median of several."""
    act()
    return sorted(cpu_ms(act) for _ in range(times))[times // 2]


def pyiceberg_ms(location: str, wanted: BooleanExpression) -> float:
    table = StaticTable.from_metadata(location)
    return cpu_ms(lambda: list(table.scan(row_filter=wanted).plan_files()))


if __name__ == "__main__":
    main()
