"""What this machine does without us, which bounds what we can do: Postgres, disk, JSON and Avro, on one core each.

And how much more all processors do than one: where they are threads of one core, much less than their number.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson
import psycopg

from duckicelake.iceberg.manifest.entry import EntryStatus, ManifestContent, ManifestEntry
from duckicelake.iceberg.manifest.writer import write_manifest
from duckicelake.iceberg.partition import UNPARTITIONED
from duckicelake.iceberg.schema import Schema
from duckicelake.postgres.embedded import EmbeddedPostgres
from scripts.bench_job.client import data_file, milliseconds, schema, timed
from scripts.bench_job.results import Result, options_of, p50, p99, report

SNAPSHOTS = 2000
BUSY_SECONDS = 2


def main() -> None:
    options = options_of(__doc__)
    times = 200 if options.quick else 2000
    results = [*postgres(times), *disk(times), *json(), *avro(times), *processors()]
    report("What this machine does without us", results, options)


def postgres(times: int) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="duckicelake-bench-") as folder, EmbeddedPostgres(Path(folder)) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE written (id bigint PRIMARY KEY, body text)")
            number = iter(range(1_000_000))
            asking = timed(lambda: connection.execute("SELECT 1", prepare=True).fetchone(), times)
            writing = timed(
                lambda: connection.execute("INSERT INTO written VALUES (%s, 'x')", [next(number)], prepare=True), times
            )
        yield rate("Postgres: prepared SELECT 1", asking, "/s")
        yield rate("Postgres: INSERT of a row, durable", writing, "commits/s")


def disk(times: int) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="duckicelake-bench-") as folder:
        number = iter(range(1_000_000))

        def write() -> None:
            descriptor = os.open(Path(folder, str(next(number))), os.O_WRONLY | os.O_CREAT)
            os.write(descriptor, bytes(4096))
            os.fsync(descriptor)
            os.close(descriptor)

        yield rate("disk: a file of 4 kB, synced", timed(write, times), "files/s")


def json() -> Iterator[Result]:
    """Of a table's metadata with many snapshots."""
    summary = {"operation": "append", "added-data-files": "1", "added-records": "1000", "total-records": "1000000"}
    snapshot = {
        "snapshot-id": 1 << 60,
        "parent-snapshot-id": 1 << 60,
        "sequence-number": 1000,
        "timestamp-ms": 1_700_000_000_000,
        "manifest-list": f"/warehouse/data/ns/table/metadata/snap-{'0' * 60}.avro",
        "summary": summary,
        "schema-id": 0,
    }
    document: Any = {"snapshots": [dict(snapshot) for _ in range(SNAPSHOTS)]}
    encoded = [orjson.dumps(each) for each in document["snapshots"]]
    size = len(orjson.dumps(document)) / 1e6
    whole = timed(lambda: orjson.dumps(document), 50)
    joined = timed(lambda: orjson.dumps({"snapshots": orjson.Fragment(b"[" + b",".join(encoded) + b"]")}), 50)
    yield Result(f"JSON: metadata of {SNAPSHOTS:,} snapshots, encoded", size / p50(whole), "MB/s")
    yield Result(f"JSON: the same of {SNAPSHOTS:,} pieces", size / p50(joined), "MB/s")


def avro(times: int) -> Iterator[Result]:
    one = encoder(5, 1)
    yield rate("Avro: a manifest of one file, 5 columns", timed(one, times), "manifests/s")
    for columns in (5, 23):
        many = encoder(columns, 2000)
        before = time.perf_counter()
        many()
        yield Result(f"Avro: manifest entries, {columns} columns", 2000 / (time.perf_counter() - before), "entries/s")


def processors() -> Iterator[Result]:
    """By what a commit does most, encoding in Python."""
    number = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(number, get_context("spawn")) as pool:
        together = sum(pool.map(encoded, range(number)))
        (alone,) = pool.map(encoded, range(1))
    yield Result(f"Avro: the same by {number} processes at once", together, "manifests/s", None, alone, "one alone")


def encoded(_: int) -> float:
    """Manifests a second."""
    encode, count, end = encoder(5, 1), 0, time.perf_counter() + BUSY_SECONDS
    while time.perf_counter() < end:
        encode()
        count += 1
    return count / BUSY_SECONDS


def encoder(columns: int, files: int) -> Callable[[], bytes]:
    entries = [
        ManifestEntry(EntryStatus.ADDED, 1, None, None, data_file(f"/warehouse/data/{number}.parquet", columns, number))
        for number in range(files)
    ]
    return lambda: write_manifest(
        format_version=2,
        content=ManifestContent.DATA,
        schema=Schema.model_validate(schema(columns)),
        spec=UNPARTITIONED,
        entries=entries,
    )


def rate(name: str, seconds: list[float], unit: str) -> Result:
    took = milliseconds(seconds)
    return Result(name, len(seconds) / sum(seconds), unit, p50=p50(took), p99=p99(took))


if __name__ == "__main__":
    main()
