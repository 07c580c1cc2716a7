"""A sensor's small batches, 10 rows of 23 columns each: DuckDB, PyIceberg and the rows endpoint on one lake.

DuckDB's own inlining, in the same Postgres, is the reference for inserts, for nine aggregations (in DuckDB) and for the
flush. PyIceberg appends fewer batches, and each costs the more the more there are: its figure flatters it. The long run
(`--long 30000`) has the server flush by itself while an Iceberg client loads the table every second.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter
from typing import Final

import duckdb

from duckicelake.client import Batching, Connection, Writer
from duckicelake.pipeline.duck import ATTACHED, attached
from duckicelake.pipeline.sensor_engines import DuckDBEngine
from duckicelake.pipeline.sensors import AGGREGATIONS, COLUMNS, batches
from scripts.bench_job.client import Rest
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.sensor_writers import (
    NAMESPACE,
    Batches,
    Insert,
    by_duckdb,
    by_endpoint,
    by_pyiceberg,
    by_writer,
    timed,
)
from scripts.bench_job.servers import Bench, running_bench

ROWS: Final = 10
"""Of a batch."""
WORKERS: Final = 2
CLIENTS: Final = 16
PYICEBERG: Final = 20
"""Times fewer batches."""
AGAIN: Final = 5
FLUSH_ROWS: Final = 20_000
WINDOW: Final = 1000
"""Batches whose rates the long run compares."""


@dataclass(frozen=True, slots=True)
class Times:
    """Of one way: batches a second, seconds of all aggregations and of the flush, data files before that."""

    rate: float
    aggregation: float
    flush: float
    files: int


def main() -> None:
    options = options_of(__doc__, batches=(1000, "batches"), long=(0, "batches of the long run, 0: none"))
    count = 160 if options.quick else options.batches
    results = [*side_by_side(count), *(long_run(options.long) if options.long else ())]
    report(title(options, count), results, options)


def title(options: argparse.Namespace, count: int) -> str:
    return f"{count:,} batches of {ROWS} rows" + (f", and a long run of {options.long:,}" if options.long else "")


def side_by_side(count: int) -> Iterator[Result]:
    made = list(batches(count * ROWS, ROWS))
    with (
        running_bench(workers=WORKERS, auth=False) as bench,
        attached(bench.ducklake_attach, read_only=False) as duck,
    ):
        rest = Rest(bench.uri)
        native = measured(duck, rest, "native", by_duckdb(duck), made)
        files = measured(duck, rest, "files", by_duckdb(duck), made, inline=False)
        foreign = measured(duck, rest, "pyiceberg", by_pyiceberg(bench.uri), made[: max(count // PYICEBERG, 1)])
        one = measured(duck, rest, "one", by_endpoint(bench.uri, 1), made)
        crowd = measured(duck, rest, "crowd", by_endpoint(bench.uri, CLIENTS), made)
        writer = measured(duck, rest, "writer", by_writer(bench.uri), made)
    yield Result("insert: DuckDB, inlined", native.rate, "batches/s")
    yield Result("insert: DuckDB, a file for each batch", files.rate, "batches/s", None, native.rate, "DuckDB")
    fewer = f"insert: PyIceberg appends, {PYICEBERG} times fewer of them"
    yield Result(fewer, foreign.rate, "batches/s", None, native.rate, "DuckDB")
    for name, found, target in (("one client", one, 3), (f"{CLIENTS} clients", crowd, 10)):
        yield Result(f"insert: rows, {name}", found.rate, "batches/s", _times(target), native.rate, "DuckDB")
        against = f"the same against PyIceberg: rows, {name}"
        yield Result(against, found.rate, "batches/s", _times(500), foreign.rate, "PyIceberg")
        yield from compared(name, found, native)
    yield Result("insert: rows, our client for Python", writer.rate, "batches/s", None, native.rate, "DuckDB")
    yield Result("data files before the flush: DuckDB, a file for each batch", files.files, "")


def compared(name: str, found: Times, native: Times) -> Iterator[Result]:
    for what, mine, reference in (
        ("aggregations", found.aggregation, native.aggregation),
        ("flush", found.flush, native.flush),
    ):
        target = Target("≤", 1.5, "ratio")
        yield Result(f"{what}: rows, {name}", mine * 1000, "ms", target, reference * 1000, "DuckDB")
    yield Result(f"data files before the flush: rows, {name}", found.files, "", Target("≤", 0))


def _times(ratio: float) -> Target:
    return Target("≥", ratio, "ratio")


def measured(
    duck: duckdb.DuckDBPyConnection, rest: Rest, table: str, insert: Insert, made: Batches, *, inline: bool = True
) -> Times:
    """Make a table, insert, aggregate, flush: DuckDB its own tables, the server those of others."""
    engine = DuckDBEngine(duck, NAMESPACE, table)
    engine.create()
    if not inline:
        duck.execute(f"CALL {ATTACHED}.set_option('data_inlining_row_limit', 0, table_name => '{table}')")
    rate = len(made) / timed(lambda: insert(table, made))
    (found,) = engine.query("SELECT count(*), count(DISTINCT sequence) FROM {t}")
    expected = sum(map(len, made))
    if found != (expected, expected):
        raise RuntimeError(f"{table} has {found} rows and sequences instead of {expected}")
    aggregation = statistics.median(timed(lambda: list(map(engine.query, AGGREGATIONS))) for _ in range(AGAIN))
    files = data_files(duck, table)
    is_native = table in {"native", "files"}
    flush = timed(lambda: flush_natively(duck, table) if is_native else flush_by_endpoint(rest, table))
    return Times(rate, aggregation, flush, files)


def data_files(duck: duckdb.DuckDBPyConnection, table: str) -> int:
    """Live ones."""
    (found,) = duck.execute("SELECT count(*) FROM ducklake_list_files(?, ?)", [ATTACHED, table]).fetchall()
    return int(found[0])


def flush_natively(duck: duckdb.DuckDBPyConnection, table: str) -> None:
    duck.execute("CALL ducklake_flush_inlined_data(?, table_name => ?)", [ATTACHED, table])


def flush_by_endpoint(rest: Rest, table: str) -> None:
    rest.ask("POST", f"/namespaces/main/tables/{table}/rows/flush")


def long_run(count: int) -> Iterator[Result]:
    """One client's rate at the end against that at the beginning, and what a reader sees all the while."""
    settings = {"DUCKICELAKE_FLUSH_ROWS": str(FLUSH_ROWS)}
    with running_bench(workers=WORKERS, auth=False, settings=settings) as bench:
        with attached(bench.ducklake_attach, read_only=False) as duck:
            DuckDBEngine(duck, NAMESPACE, "long").create()
        over, reader = Event(), Reader(bench)
        thread = Thread(target=reader.read, args=(over,))
        thread.start()
        try:
            seconds = stream(bench, count)
        finally:
            over.set()
            thread.join()
    window = min(WINDOW, count // 2)
    rates = [window / sum(each) for each in (seconds[-window:], seconds[:window])]
    yield Result(
        f"long run: the last {window:,} batches", rates[0], "batches/s", _times(1 / 1.2), rates[1], "the first"
    )
    yield Result("counts that a reader saw fall", reader.falls(), "", Target("≤", 0))
    loads = [each * 1000 for each in reader.seconds]
    yield Result("loads by a reader, p99", p99(loads), "ms", Target("≤", 200), p50=p50(loads), p99=p99(loads))


def stream(bench: Bench, count: int) -> list[float]:
    """Seconds of each batch, one after the other."""
    seconds = []
    with Writer("main.long", Connection(bench.uri), Batching(max_rows=ROWS)) as writer:
        for batch in batches(count * ROWS, ROWS):
            rows = [dict(zip(COLUMNS, row, strict=True)) for row in batch]
            began = perf_counter()
            writer.append(rows)
            writer.flush()
            seconds.append(perf_counter() - began)
    return seconds


class Reader:
    """An Iceberg client that loads the table every second; `counts` are the rows that it finds."""

    def __init__(self, bench: Bench) -> None:
        self._rest = Rest(bench.uri)
        self.seconds: list[float] = []
        self.counts: list[int] = []

    def read(self, over: Event) -> None:
        while not over.wait(1):
            began = perf_counter()
            metadata = self._rest.load("long", namespace="main")
            self.seconds.append(perf_counter() - began)
            self.counts.append(total(metadata["snapshots"]))

    def falls(self) -> int:
        """How often there were fewer rows than before."""
        return sum(after < before for before, after in zip(self.counts, self.counts[1:], strict=False))


def total(snapshots: Sequence[dict[str, dict[str, str]]]) -> int:
    """Rows of the newest snapshot."""
    return int(snapshots[-1]["summary"]["total-records"]) if snapshots else 0


if __name__ == "__main__":
    main()
