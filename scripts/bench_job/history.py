"""Loads over HTTP of a table that lists 10,000 snapshots, against the same of one that lists 10; one connection.

The snapshots are rows made in Postgres, each with the summary that Spark gives it; the newest is a real append. With
`snapshots=refs` the answer has that one and the whole snapshot log, which `AS OF` a time is looked up in. "After a
commit" loads are the first ones after it. The first full load of a version makes and writes metadata.json.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import psycopg

from scripts.bench_job.client import NAMESPACE, Appender, LocalFiles, Rest, milliseconds, timed
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, running_bench

FEW: Final = 10
FILL: Final = """
WITH t AS (
    SELECT d.* FROM duckicelake_table d JOIN ducklake_table USING (table_id) WHERE table_name = %(table)s
), number AS MATERIALIZED (SELECT i, 1000 + i AS snapshot_id FROM generate_series(1, %(snapshots)s::bigint - 1) i
), snapshot AS (
    INSERT INTO duckicelake_snapshot (table_id, snapshot_id, ducklake_id, parent_snapshot_id, sequence_number,
        timestamp_ms, schema_id, summary, manifest_ids)
    SELECT table_id, snapshot_id, 0, nullif(snapshot_id - 1, 1000), 1, last_updated_ms - %(snapshots)s + i, 0,
           json_build_object('operation', 'append', 'spark.app.id', 'local-1700000000000', 'added-data-files', '5',
               'added-records', '5000', 'added-files-size', '500000', 'changed-partition-count', '1',
               'total-records', (5000 * i)::text, 'total-files-size', (500000 * i)::text,
               'total-data-files', (5 * i)::text, 'total-delete-files', '0', 'total-position-deletes', '0',
               'total-equality-deletes', '0', 'engine-version', '4.1.0', 'engine-name', 'spark'), '{}'
    FROM t, number
), log AS (
    INSERT INTO duckicelake_snapshot_log (table_id, ordinal, snapshot_id, timestamp_ms)
    SELECT table_id, i - %(snapshots)s, snapshot_id, last_updated_ms - %(snapshots)s + i FROM t, number
), list AS (
    INSERT INTO duckicelake_artifact (table_id, kind, object_id, path, length, sha256, timestamp_ms)
    SELECT table_id, 'manifest-list', snapshot_id,
           location || '/metadata/snap-' || snapshot_id || '-' || gen_random_uuid() || '.avro', 1000, '', 0
    FROM t, number
)
UPDATE duckicelake_table d SET version = d.version + 1 FROM t WHERE d.table_id = t.table_id
"""


def main() -> None:
    options = options_of(__doc__, snapshots=(10_000, "how many snapshots"), loads=(200, "how many loads of each kind"))
    loads = options.loads // 5 if options.quick else options.loads
    with running_bench() as bench:
        report("Long histories", list(compared(bench, options.snapshots, loads)), options)


def compared(bench: Bench, many: int, loads: int) -> Iterator[Result]:
    rest = Rest(bench.uri, bench.headers)
    rest.create_namespace()
    tables = {name: Appender(rest, LocalFiles(), name, rest.create_table(name)) for name in ("few", "many", "other")}
    for table in tables.values():
        table.append()
    fill(bench, "few", FEW)
    fill(bench, "many", many)
    yield from full(rest, tables["few"], tables["many"], many)

    def refs(name: str) -> Callable[[], object]:
        return lambda: rest.ask("GET", f"/namespaces/{NAMESPACE}/tables/{name}?snapshots=refs")

    yield against(f"refs of {many:,}, hit", timed(refs("many"), loads), timed(refs("few"), loads))
    found: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(loads):
        for name in found:
            tables["other"].append()
            found[name] += timed(refs(name), 1)
    yield against(f"refs of {many:,}, after a commit to another table", found["many"], found["few"])
    found = {"few": [], "many": []}
    for _ in range(loads // 4):
        for name in found:
            tables[name].append()
            found[name] += timed(refs(name), 1)
    yield against(f"refs of {many:,}, after a commit to it", found["many"], found["few"])
    rest.close()


def full(rest: Rest, few: Appender, many: Appender, snapshots: int) -> Iterator[Result]:
    """Full loads: the first, which reads and encodes everything, and then hits."""
    before = time.perf_counter()
    body = rest.ask("GET", many.path)
    first = time.perf_counter() - before
    size = len(body) / 1e6
    yield Result(f"full load of {snapshots:,}, {size:.1f} MB, the first one", size / first, "MB/s", p50=1000 * first)
    hits = timed(lambda: rest.ask("GET", many.path), 20)
    yield Result(
        "the same, a hit", size / p50(hits), "MB/s", Target("≥", 50), p50=p50(hits) * 1000, p99=p99(hits) * 1000
    )
    for table in (few, many):
        table.metadata = rest.load(table.name)


def against(name: str, many: list[float], few: list[float]) -> Result:
    long, short = p99(milliseconds(many)), p99(milliseconds(few))
    line = f"{name}, p99 against that of {FEW}"
    return Result(line, long, "ms", Target("≤", 2, "ratio"), short, "ms", p50(milliseconds(many)), long)


def fill(bench: Bench, table: str, snapshots: int) -> None:
    """Let a table have so many snapshots."""
    address = bench.ducklake_attach.partition("ducklake:postgres:")[2].partition("'")[0]
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(FILL, {"table": table, "snapshots": snapshots})
        connection.execute("ANALYZE")


if __name__ == "__main__":
    main()
