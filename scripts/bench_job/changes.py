"""Changed rows of one snapshot by the server, as Arrow and as lines of JSON, beside DuckLake's `table_changes`.

A table in files has three snapshots: all rows inserted, half of them updated, a tenth deleted. Each is read by the
route, whose answers Python's own client follows to the end, and by a DuckDB in this process that has attached the
lake, into a table of its own. They take turns; the first round of each is left out, as the server then opens the lake.
Memory is the most that the process of the answer had at one moment; it may take 1 GiB, and what it sorts beyond that
goes to its disk.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from threading import Event, Thread
from typing import BinaryIO, Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import duckdb
import psutil  # type: ignore[import-untyped]
import pyarrow as pa

from scripts.bench_job.results import Result, Target, options_of, report
from scripts.bench_job.servers import running_bench
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/x-ndjson"
STEPS: Final = {
    "inserted": ("INSERT INTO lake.t SELECT i, 'name ' || i % 97, i / 7, md5(i::VARCHAR) FROM range({rows}) r(i)", 1),
    "updated": ("UPDATE lake.t SET amount = amount + 1 WHERE id % 2 = 0", 1),
    "deleted": ("DELETE FROM lake.t WHERE id % 10 = 0", 1 / 10),
}
"""Statements, and the changes that each makes, as a share of all rows."""
SETTINGS: Final = {"DUCKICELAKE_QUERY_ROWS": "1000000", "DUCKICELAKE_QUERY_SECONDS": "300"}
POLL_SECONDS: Final = 0.1


def main() -> None:
    options = options_of(__doc__, rows=(1_000_000, "rows of the table"), rounds=(3, "how often each is read"))
    rows = options.rows // 10 if options.quick else options.rows
    with running_bench(auth=False, settings=SETTINGS) as bench:
        lake = RunningLake(bench.folder, bench.uri, bench.ducklake_attach)
        with duckdb_lake(lake) as duck:
            duck.execute("CREATE TABLE lake.t (id BIGINT, name VARCHAR, amount DOUBLE, note VARCHAR)")
            results: list[Result] = []
            for kind, (statement, share) in STEPS.items():
                changes = round(rows * share)
                results += measure(bench.uri, duck, kind, statement.format(rows=rows), changes, options.rounds)
    report("Row changes", results, options)


def measure(
    uri: str, duck: duckdb.DuckDBPyConnection, kind: str, statement: str, changes: int, rounds: int
) -> Iterator[Result]:
    """Make a snapshot, and measure who reads it."""
    duck.execute(statement)
    ((snapshot_id,),) = duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    ways: dict[str, Callable[[], int]] = {
        "Arrow": lambda: read_changes(uri, ARROW, snapshot_id),
        "lines of JSON": lambda: read_changes(uri, JSON, snapshot_id),
        "table_changes": lambda: read_native(duck, snapshot_id),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    peaks: list[int] = []
    for number in range(-1, rounds):
        for name in [*ways][number % 3 :] + [*ways][: number % 3]:
            with sampled_memory(peaks):
                began = time.perf_counter()
                found = ways[name]()
                took = time.perf_counter() - began
            seconds[name] += [took] if number >= 0 else []
            assert found == changes, (kind, name, found, changes)
    reference = changes / median(seconds["table_changes"])
    for name in ("Arrow", "lines of JSON"):
        rate = changes / median(seconds[name])
        target = Target("≥", 0.5, "ratio") if name == "Arrow" else None
        yield Result(f"{changes:,} rows {kind}: {name}", rate, "rows/s", target, reference, "table_changes")
    yield Result(f"{changes:,} rows {kind}: memory", max(peaks) / 1e6, "MB", Target("≤", 1250))


def read_changes(uri: str, form: str, snapshot_id: int) -> int:
    """Read a snapshot's changes to the end, as they come; return how many they are."""
    count, position, is_complete = 0, str(snapshot_id - 1), False
    while not is_complete:
        query = urlencode({"from": position, "to": snapshot_id})
        asked = Request(f"{uri}/v1/namespaces/main/tables/t/changes?{query}", headers={"Accept": form})
        with urlopen(asked, timeout=600) as answer:
            rows, position, is_complete = read_lines(answer) if form == JSON else read_batches(answer)
        count += rows
    return count


def read_lines(answer: BinaryIO) -> tuple[int, str, bool]:
    """Count the rows of an answer; return the position at its end, too, and whether it is complete."""
    rows, last = 0, b""
    for line in answer:
        rows, last = rows + 1, line
    end = json.loads(last)
    return rows - 1, end["_position"], end["_is_complete"]


def read_batches(answer: BinaryIO) -> tuple[int, str, bool]:
    """Count the rows of an answer as `read_lines` does."""
    rows, said = 0, {}
    with pa.ipc.open_stream(answer) as stream:
        for one in stream.iter_batches_with_custom_metadata():
            rows, said = rows + one.batch.num_rows, one.custom_metadata
    return rows, said[b"position"].decode(), json.loads(said[b"is-complete"])


def read_native(duck: duckdb.DuckDBPyConnection, snapshot_id: int) -> int:
    """Read a snapshot's changes into a table of the process; return how many they are.

    As Arrow, a million of them never end: all threads of DuckDB 1.5.5 sleep.
    """
    rows = f"FROM ducklake_table_changes('lake', 'main', 't', {snapshot_id}, {snapshot_id})"
    duck.execute(f"CREATE OR REPLACE TEMP TABLE changed AS {rows}")
    ((count,),) = duck.execute("SELECT count(*) FROM changed").fetchall()
    return int(count)


@contextmanager
def sampled_memory(peaks: list[int]) -> Iterator[None]:
    """Note the most resident bytes of one process that answers changes, at one moment of the block."""
    ended, found = Event(), [0]

    def sample() -> None:
        while not ended.wait(POLL_SECONDS):
            found.extend(map(read_memory, psutil.Process().children(recursive=True)))

    thread = Thread(target=sample, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()
    peaks.append(max(found))


def read_memory(process: psutil.Process) -> int:
    try:
        is_ours = any("row_changes/worker.py" in part for part in process.cmdline())
        return int(process.memory_info().rss) if is_ours else 0
    except psutil.Error:
        return 0


if __name__ == "__main__":
    main()
