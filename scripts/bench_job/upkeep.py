"""Small files become few: by a worker of the server, by DuckLake's own merge, and by Spark's `rewrite_data_files`.

Each has a table of its own, made of the same files, which clients have loaded before, and which goes before the next
one comes. The three take turns, and each round has another of them first. All must show the same rows afterwards. All
write zstd, as the lake says. The worker's files a second are those of its task, as the history of jobs has it. Its
seconds beside Spark's go from the request to the queue's `done`, the start of a process included; Spark runs already.
Memory is the most that the worker and its DuckDB had together at one moment.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from threading import Event, Thread
from typing import Any, Final

import duckdb
import psutil  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from duckicelake.pipeline.session import open_spark_session
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.bench_job.results import Result, Target, options_of, report
from scripts.bench_job.servers import Bench, running_bench
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake

SETTINGS: Final = {"DUCKICELAKE_UPKEEP_WORKERS": "1"}
SUMS: Final = "SELECT count(*), sum(id), bit_xor(hash(id, name, amount, note)) FROM lake.main.{}"
WAYS: Final = ("worker", "ducklake", "spark")
CODEC: Final = "zstd"
"""Iceberg's default. DuckLake's is snappy, which is faster to write, and twice as large."""
BATCH_FILES: Final = 100
"""Files of one transaction that makes them."""
POLL_SECONDS: Final = 0.05
WRITER_SECONDS: Final = 6
"""After which upkeep takes who made the files for no writer any more, beside whom it rests."""
MAX_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The files of a table. width: bytes of a text that compression leaves as long, in each row."""

    files: int
    rows: int
    width: int


@dataclass(slots=True)
class Times:
    """What was measured, one value for each round. Seconds, but for memory, which is bytes."""

    worker: list[float] = field(default_factory=list)
    task: list[float] = field(default_factory=list)
    ducklake: list[float] = field(default_factory=list)
    spark: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)


def main() -> None:
    options = options_of(
        __doc__,
        files=(5000, "files of a table"),
        rows=(100, "rows of a file"),
        width=(0, "bytes of random text in each row"),
        rounds=(3, "how often each merges a table"),
        spark=(1, "0: without Spark"),
    )
    shape = Shape(options.files // 10 if options.quick else options.files, options.rows, options.width)
    rounds = 1 if options.quick else options.rounds
    ways = WAYS if options.spark else WAYS[:2]
    with running_bench(auth=False, settings=SETTINGS) as bench:
        times, megabytes = measure(bench, shape, rounds, ways)
    for found in ("worker", "task", "ducklake", "spark"):
        print(found, *(f"{seconds:.2f}" for seconds in getattr(times, found)), "s", flush=True)
    name = f"{shape.files:,} files of {shape.rows:,} rows, {megabytes:,.0f} MB, {rounds} rounds"
    report("Upkeep", list(describe(name, shape, times)), options)


def describe(name: str, shape: Shape, times: Times) -> Iterator[Result]:
    rate, reference = (shape.files / statistics.median(found) for found in (times.task, times.ducklake))
    yield Result(f"{name}: the worker's task", rate, "files/s", Target("≥", 0.8, "ratio"), reference, "DuckLake")
    if times.spark:
        seconds, spark = statistics.median(times.worker), statistics.median(times.spark)
        yield Result("from the request to the end", seconds, "s", Target("≤", 1 / 3, "ratio"), spark, "Spark")
    yield Result("memory of the worker and its DuckDB", max(times.memory) / 1e6, "MB", Target("≤", 1000))


def measure(bench: Bench, shape: Shape, rounds: int, ways: tuple[str, ...]) -> tuple[Times, float]:
    """Measure all rounds; return the times, and the megabytes of one table's files."""
    lake = RunningLake(bench.folder, bench.uri, bench.ducklake_attach)
    connection = Connection(bench.uri)
    client, times = CatalogClient(connection), Times()
    client.change("PUT", client.own("pipeline", "policies"), {"policies": {"maintenance.automatic": "none"}})
    with duckdb_lake(lake) as duck, spark_if(connection, is_wanted="spark" in ways) as spark:
        duck.execute(f"CALL lake.set_option('parquet_compression', '{CODEC}')")
        found = set()
        for number in range(rounds):
            start = number % len(ways)
            for way in (*ways[start:], *ways[:start]):
                name = f"{way}{number}"
                make(duck, name, shape)
                client.load_table(("main",), name)
                megabytes = measure_table(duck, name)
                time.sleep(WRITER_SECONDS)
                merge(way, name, client, duck, spark, times)
                found.add(duck.sql(SUMS.format(name)).fetchone())
                remove(duck, name)
    assert len(found) == 1, f"the tables differ: {found}"
    return times, megabytes


def make(duck: duckdb.DuckDBPyConnection, name: str, shape: Shape) -> None:
    """Make a table of one file for each insert."""
    duck.execute(f"CREATE TABLE lake.{name} (id BIGINT, name VARCHAR, amount DOUBLE, note VARCHAR)")
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0, table_name => ?)", [name])
    hashes = shape.width // 32
    note = " || ".join(f"md5(concat(range, ' {at}'))" for at in range(hashes)) or "NULL"
    duck.execute("BEGIN")
    for number in range(shape.files):
        rows = f"range({number * shape.rows}, {(number + 1) * shape.rows})"
        duck.execute(f"INSERT INTO lake.{name} SELECT range, 'name ' || range % 97, range / 7, {note} FROM {rows}")
        if number % BATCH_FILES == BATCH_FILES - 1:
            duck.execute("COMMIT; BEGIN")
    duck.execute("COMMIT")


def measure_table(duck: duckdb.DuckDBPyConnection, name: str) -> float:
    query = "SELECT sum(file_size_bytes) / 1e6 FROM ducklake_table_info('lake') WHERE table_name = ?"
    ((megabytes,),) = duck.execute(query, [name]).fetchall()
    return float(megabytes)


def remove(duck: duckdb.DuckDBPyConnection, name: str) -> None:
    """Drop a table, and remove its files: of large ones the disk has room for one at a time."""
    duck.execute(f"DROP TABLE lake.{name}")
    duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    duck.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")


def merge(
    way: str,
    name: str,
    client: CatalogClient,
    duck: duckdb.DuckDBPyConnection,
    spark: SparkSession | None,
    times: Times,
) -> None:
    if way == "ducklake":
        times.ducklake.append(timed(lambda: duck.execute(f"CALL ducklake_merge_adjacent_files('lake', '{name}')")))
    elif way == "spark":
        assert spark is not None
        spark.table(f"lake.main.{name}").count()
        call = f"CALL lake.system.rewrite_data_files(table => 'main.{name}', options => map('min-input-files', '2'))"
        times.spark.append(timed(lambda: spark.sql(call).collect()))
    else:
        with sampled_memory(times):
            times.worker.append(timed(lambda: compact(client, name)))
        times.task.append(read_task_seconds(client, name))


def compact(client: CatalogClient, name: str, poll_seconds: float = POLL_SECONDS) -> None:
    """Ask for a compaction, and wait for its end."""
    client.change("POST", client.pipeline(("main",), name, "upkeep"), {"kinds": ["compact"]})
    ends = time.monotonic() + MAX_SECONDS
    while time.monotonic() < ends:
        query = {"namespace": "main", "table": name}
        states = {task["state"]: task for task in client.get(client.own("pipeline", "upkeep"), query)["tasks"]}
        if "done" in states:
            return
        assert not states.keys() & {"failed", "blocked"}, states
        time.sleep(poll_seconds)
    raise TimeoutError(f"the compaction of {name} takes longer than {MAX_SECONDS:.0f} s")


def read_task_seconds(client: CatalogClient, name: str) -> float:
    job: Mapping[str, Any] = next(client.jobs(namespace="main", table=name, kind="compact"))
    assert job["result"] == "done", job
    return (datetime.fromisoformat(job["ended"]) - datetime.fromisoformat(job["started"])).total_seconds()


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


@contextmanager
def spark_if(connection: Connection, *, is_wanted: bool) -> Iterator[SparkSession | None]:
    if not is_wanted:
        yield None
        return
    with open_spark_session(connection, conf={"spark.driver.memory": "2g"}) as spark:
        yield spark


@contextmanager
def sampled_memory(times: Times) -> Iterator[None]:
    """Note the most resident bytes of all workers and their DuckDB at one moment of the block."""
    ended, peak = Event(), 0

    def sample() -> None:
        nonlocal peak
        while not ended.wait(POLL_SECONDS):
            peak = max(peak, sum(map(read_memory, find_workers())))

    thread = Thread(target=sample, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()
    times.memory.append(peak)


def find_workers() -> list[psutil.Process]:
    """Find processes of workers: those below the server that run DuckDB for a rewrite, and their parents."""
    found: dict[int, psutil.Process] = {}
    for process in psutil.Process().children(recursive=True):
        try:
            if any("rewrites/worker.py" in part for part in process.cmdline()):
                found |= {process.pid: process, process.ppid(): psutil.Process(process.ppid())}
        except psutil.Error:
            continue
    return list(found.values())


def read_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
