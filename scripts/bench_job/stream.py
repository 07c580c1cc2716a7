"""Small batches come in all the time, and the server's worker flushes and merges them by the policies of new lakes.

The stream: clients send batches of 10 rows of a sensor, so many a second. A reader loads the table at intervals, DuckDB
reads the newest minute and all rows, and the table's files are counted. The last quarter of the samples is held against
the first one. The writer: one client sends as fast as it can, and the worker merges another table from time to time.
The rate during a merge is held against the mean of those before and after it, as it grows with time.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from threading import Event, Lock, Thread
from typing import Final, Self

import duckdb

from duckicelake.pipeline.sensor_bench import SENSOR_COLUMNS, DuckDBEngine, generate_batches
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.bench_job.client import Rest
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, running_bench
from scripts.bench_job.upkeep import SETTINGS, Shape, compact, make, timed
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake

TABLE: Final = "stream"
PATH: Final = f"/namespaces/main/tables/{TABLE}/rows"
ROWS: Final = 10
"""Of a batch."""
CLIENTS: Final = 4
SAMPLES: Final = 24
AGAIN: Final = 3
"""How often each sample asks; the median counts."""
MERGED: Final = Shape(files=100, rows=100_000, width=64)
WARM_UP_SECONDS: Final = 30.0
"""Of the writer, before the first merge: the first batches of a server take longer."""
ALONE_SECONDS: Final = 15.0
POLL_SECONDS: Final = 0.5
"""Between two looks whether a merge is done: each is a request, which takes of the server what the writer lacks."""
FLAT: Final = Target("≤", 1.5, "ratio")


@dataclass(frozen=True, slots=True)
class Sample:
    """What readers found at one moment. Milliseconds, batches a second since the sample before, counts."""

    load: float
    newest: float
    everything: float
    rate: float
    files: int


class Stream:
    """Sends batches at a rate, in the block, from so many clients. Infinity: as fast as they can."""

    def __init__(self, uri: str, rate: float, clients: int) -> None:
        self._uri, self._rate = uri, rate
        self._batches = generate_batches(1 << 62, ROWS)
        self._lock, self._over = Lock(), Event()
        self._taken = 0
        self.sent = 0
        self.seconds: list[float] = []
        self._threads = [Thread(target=self._send, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        rest = Rest(self._uri)
        while not self._over.is_set():
            with self._lock:
                number, batch = self._taken, next(self._batches)
                self._taken += 1
            self._over.wait(max(0.0, self._began + number / self._rate - time.perf_counter()))
            rows = [dict(zip(SENSOR_COLUMNS, row, strict=True)) for row in batch]
            took = timed(partial(rest.ask, "POST", PATH, rows))
            with self._lock:
                self.sent += 1
                self.seconds.append(took)


def main() -> None:
    options = options_of(
        __doc__,
        minutes=(60, "minutes of the stream"),
        rate=(100, "batches a second"),
        expire=(0, "1: the worker also expires snapshots older than five minutes"),
        merges=(5, "merges beside the writer"),
    )
    minutes = 1 if options.quick else options.minutes
    with running_bench(auth=False, settings=SETTINGS) as bench:
        lake = RunningLake(bench.folder, bench.uri, bench.ducklake_attach)
        with duckdb_lake(lake) as duck:
            results = [
                *stream(bench, duck, minutes * 60, options.rate, is_expired=bool(options.expire)),
                *beside(bench, duck, 1 if options.quick else options.merges),
            ]
    title = f"{options.rate:,} batches of {ROWS} rows a second for {minutes:,} minutes"
    report(title, results, options)


def stream(
    bench: Bench, duck: duckdb.DuckDBPyConnection, seconds: float, rate: int, *, is_expired: bool
) -> Iterator[Result]:
    """Run the stream, and compare what readers paid at its end and at its beginning."""
    if is_expired:
        policies = {"maintenance.automatic": "flush,compact,expire", "history.expire.max-snapshot-age-ms": "300000"}
        set_policies(CatalogClient(Connection(bench.uri)), policies)
    engine = DuckDBEngine(duck, ("main",), TABLE)
    engine.create()
    with Stream(bench.uri, rate, CLIENTS) as sending:
        samples = list(sample(bench, duck, sending, seconds, rate))
    (found,) = engine.query("SELECT count(*), count(DISTINCT sequence) FROM {t}")
    assert found == (sending.sent * ROWS, sending.sent * ROWS), f"of {sending.sent} batches {found} are there"
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]
    batches = [each * 1000 for each in sending.seconds]
    reached = Target("≥", 0.99 * rate)
    yield Result("the stream", sending.sent / seconds, "batches/s", reached, p50=p50(batches), p99=p99(batches))
    for name, unit in (("load", "ms"), ("newest", "ms"), ("everything", "ms"), ("files", "")):
        start, end = (statistics.median(getattr(each, name) for each in part) for part in (first, last))
        yield Result(_NAMES[name], end, unit, None if name == "everything" else FLAT, start, "the first quarter")


_NAMES: Final = {
    "load": "load of the table",
    "newest": "scan of the newest minute",
    "everything": "scan of all rows, which become more",
    "files": "data files",
}


def sample(
    bench: Bench, duck: duckdb.DuckDBPyConnection, sending: Stream, seconds: float, rate: int
) -> Iterator[Sample]:
    """Yield what readers find, at equal intervals; print each as it comes."""
    print(*(each.name for each in fields(Sample)), flush=True)
    began = before = time.perf_counter()
    sent = 0
    for number in range(1, SAMPLES + 1):
        time.sleep(max(0.0, began + seconds * number / SAMPLES - time.perf_counter()))
        now, there = time.perf_counter(), sending.sent
        found = Sample(
            load=_milliseconds(partial(Rest(bench.uri).load, TABLE, namespace="main")),
            newest=_milliseconds(partial(_read, duck, there - 60 * rate)),
            everything=_milliseconds(partial(_read, duck, 0)),
            rate=(there - sent) / (now - before),
            files=len(duck.execute("FROM ducklake_list_files('lake', ?)", [TABLE]).fetchall()),
        )
        before, sent = now, there
        print(*(f"{getattr(found, each.name):,.1f}" for each in fields(found)), flush=True)
        yield found


def set_policies(client: CatalogClient, policies: Mapping[str, str]) -> None:
    client.change("PUT", client.own("pipeline", "policies"), {"policies": policies})


def _read(duck: duckdb.DuckDBPyConnection, first: int) -> None:
    """Read the rows of a batch and all later ones."""
    duck.execute(f"SELECT avg(speed_mps) FROM lake.main.{TABLE} WHERE sequence >= ?", [first * ROWS]).fetchall()


def _milliseconds(act: Callable[[], object]) -> float:
    return 1000 * statistics.median(timed(act) for _ in range(AGAIN))


def measure_rate(writer: Stream, seconds: float) -> float:
    """Return the batches a second that a writer sends in a time."""
    sent = writer.sent
    slept = timed(partial(time.sleep, seconds))
    return (writer.sent - sent) / slept


def beside(bench: Bench, duck: duckdb.DuckDBPyConnection, merges: int) -> Iterator[Result]:
    """Compare the rate of a writer during merges of another table with its rate before and after each."""
    client = CatalogClient(Connection(bench.uri))
    set_policies(client, {"maintenance.automatic": "none"})  # the worker does nothing else, and merges no table first
    with Stream(bench.uri, math.inf, clients=1):
        time.sleep(WARM_UP_SECONDS)
    rates: list[tuple[float, float]] = []
    for number in range(merges):
        name = f"merged{number}"
        make(duck, name, MERGED)
        client.load_table(("main",), name)
        os.sync()  # what made the files leaves the disk nothing to do meanwhile
        with Stream(bench.uri, math.inf, clients=1) as writer:
            time.sleep(2)
            before = measure_rate(writer, ALONE_SECONDS)
            sent = writer.sent
            seconds = timed(partial(compact, client, name, POLL_SECONDS))
            during = (writer.sent - sent) / seconds
            alone = statistics.mean((before, measure_rate(writer, ALONE_SECONDS)))
        rates.append((during, alone))
        print(f"a merge of {seconds:.1f} s: {during:.0f} batches/s, {alone:.0f} before and after it", flush=True)
    during, alone = (statistics.median(each) for each in zip(*rates, strict=True))
    yield Result("a writer beside merges", during, "batches/s", Target("≥", 0.9, "ratio"), alone, "alone")


if __name__ == "__main__":
    main()
