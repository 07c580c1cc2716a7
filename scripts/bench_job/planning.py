"""Plans of scans of a table of 1,000,000 files with 30 columns and a partition a day, made from the catalog's rows.

The files' rows are made in Postgres; no data file exists, and no plan opens one. A thousand files match each filter,
whatever the number of files. Times are CPU of this process, in which the server's use cases run, without HTTP and
Postgres. The reference is PyIceberg's local planning of the same scan, in this process, from manifests that the server
wrote.
"""

import json
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final

from pyiceberg.expressions import BooleanExpression, EqualTo
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_plans import fetch_scan_tasks, plan_table_scan
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.rest import PlanTableScanRequest
from scripts.bench_job.embedded import Embedded, embedded_lake
from scripts.bench_job.results import Result, Target, options_of, report

COLUMNS: Final = 30
MATCHING: Final = 1_000
PER_MANIFEST: Final = 10_000
CLIENTS: Final = 16
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
    with embedded_lake() as lake:
        started = time.monotonic()
        make(lake, "big", files)
        make(lake, "small", min(files, PER_MANIFEST))
        yield Result(f"make {files:,} files and write their manifests", time.monotonic() - started, "s")
        first = fresh(lake.services)
        before = peak_memory()
        yield Result("first plan ever: unclustered filter", cpu_ms(lambda: plan(first, "big", UNCLUSTERED)), "ms CPU")
        yield Result("memory that it took", (peak_memory() - before) / 1e6, "MB")
        cold = fresh(lake.services)
        load_current_table(cold, ("main",), "big")
        spent = cpu_ms(lambda: plan(cold, "big", UNCLUSTERED))
        yield Result("first plan after a restart", spent, "ms CPU", Target("≤", 300))
        reference = pyiceberg_ms(lake, EqualTo("c2", 7))  # type: ignore[call-arg, arg-type]
        warm = warm_ms(lambda: plan(cold, "big", UNCLUSTERED))
        yield Result(
            f"unclustered filter, {MATCHING:,} files match", warm, "ms CPU", Target("≤", 50), reference, "ms PyIceberg"
        )
        day = warm_ms(lambda: plan(cold, "big", ONE_DAY))
        reference = pyiceberg_ms(lake, EqualTo("day", "2020-01-02"))  # type: ignore[call-arg, arg-type]
        yield Result("one partition", day, "ms CPU", Target("≤", 20), reference, "ms PyIceberg")
        small = warm_ms(lambda: plan(cold, "small", UNCLUSTERED))
        line = f"unclustered filter, {files:,} files against {min(files, PER_MANIFEST):,}"
        yield Result(line, warm, "ms CPU", Target("≤", 1.5, "ratio"), small, "ms CPU")
        yield crowd(cold, warm)
        before = peak_memory()
        yield Result("full scan, all pages", cpu_ms(lambda: read_all(cold)) / 1e3, "s CPU")
        yield Result("memory that it took", (peak_memory() - before) / 1e6, "MB", Target("≤", 200))
        yield Result("bytes cached", cold.scans.nbytes / 1e6, "MB")


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
    """A server that has just started."""
    return replace(services, cache=TableCache(8, 1 << 40), scans=ScanCache())


def plan(services: Services, table: str, wanted: Any) -> dict[str, Any]:
    body = json.dumps({"filter": wanted}).encode()
    request = PlanTableScanRequest.model_validate_json(body)
    answer: dict[str, Any] = json.loads(plan_table_scan(services, ("main",), table, request, body, "bench"))
    assert len(answer["file-scan-tasks"]) == MATCHING, len(answer["file-scan-tasks"])
    return answer


def read_all(services: Services) -> None:
    """Plan a scan of all files, and fetch its pages one after another."""
    request = PlanTableScanRequest.model_validate({"filter": True})
    answer = json.loads(plan_table_scan(services, ("main",), "big", request, b'{"filter":true}', "bench"))
    found, tokens = len(answer["file-scan-tasks"]), list(answer.get("plan-tasks", []))
    while tokens:
        page = json.loads(fetch_scan_tasks(services, ("main",), "big", tokens.pop(), "bench"))
        found += len(page["file-scan-tasks"])
        tokens += page.get("plan-tasks", [])
    assert found >= PER_MANIFEST, found


def crowd(services: Services, alone: float) -> Result:
    """Plans of many clients at once."""
    with ThreadPoolExecutor(CLIENTS) as clients:

        def all_at_once() -> None:
            list(clients.map(lambda _: plan(services, "big", UNCLUSTERED), range(4 * CLIENTS)))

        each = cpu_ms(all_at_once) / (4 * CLIENTS)
    line = f"unclustered filter, {CLIENTS} clients at once, a plan"
    return Result(line, each, "ms CPU", Target("≤", 1.2, "ratio"), alone, "ms CPU alone")


def cpu_ms(act: Callable[[], object]) -> float:
    before = time.process_time()
    act()
    return (time.process_time() - before) * 1e3


def warm_ms(act: Callable[[], object], times: int = 7) -> float:
    """The median of several."""
    act()
    return sorted(cpu_ms(act) for _ in range(times))[times // 2]


def pyiceberg_ms(lake: Embedded, wanted: BooleanExpression) -> float:
    table = StaticTable.from_metadata(load_current_table(fresh(lake.services), ("main",), "big").location)
    return cpu_ms(lambda: list(table.scan(row_filter=wanted).plan_files()))


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


if __name__ == "__main__":
    main()
