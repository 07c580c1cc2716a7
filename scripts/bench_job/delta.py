"""A Delta table of very many files and versions: its import, beside delta-rs loading the same log; following it, and
reading one of its files in place.

The log is written by hand, 100 files to a version and without a checkpoint; all files are names of a few. The import is
the command, its start included, in a process of its own as delta-rs is; the memory is what each had resident at most,
without Postgres. The lag is from when delta-rs has written a version until a load of the Iceberg table shows it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

import orjson
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from duckicelake import delta
from scripts.bench_job.client import NAMESPACE, Rest, milliseconds
from scripts.bench_job.delta_logs import ROWS, write_delta_table
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, running_bench
from scripts.demo_job.server import PROGRAM, own_environment

EACH: Final = 100
PAUSE: Final = 0.01
TIMEOUT: Final = 180.0
ROUNDS: Final = 5
LOADING: Final = "import sys; from deltalake import DeltaTable; DeltaTable(sys.argv[1]).get_add_actions()"
TABLE: Final = "t"


def main() -> None:
    options = options_of(__doc__, files=(100_000, "files of the table"), appends=(20, "versions that are followed"))
    files = 10_000 if options.quick else options.files
    with tempfile.TemporaryDirectory(prefix="duckicelake-delta-") as folder:
        root = Path(folder, "table")
        write_delta_table(root, files, files // EACH)
        with running_bench(
            settings={"DUCKICELAKE_ALLOWED_LOCATIONS": folder, "DUCKICELAKE_UPKEEP_WORKERS": "1"}
        ) as bench:
            results = [*imported(bench, root, files), *planned(root, files), *followed(bench, root, options.appends)]
    report(f"A Delta table of {files:,} files in {files // EACH:,} versions", results, options)


def imported(bench: Bench, root: Path, files: int) -> list[Result]:
    rest = Rest(bench.uri, bench.headers)
    rest.create_namespace()
    rest.close()
    settings = own_environment({"DUCKICELAKE_ALLOWED_LOCATIONS": str(root.parent)})
    loading = measured([sys.executable, "-c", LOADING, str(root)], {**os.environ})
    name = f"{NAMESPACE}.{TABLE}"
    command = [PROGRAM, "delta", "import", str(root), "--table", name, "--follow", "--lake", str(bench.folder)]
    ours = measured(command, settings)
    return [
        Result(
            "import", files / ours.seconds, "files/s", Target("≥", 20_000), files / loading.seconds,
            "files/s loaded by delta-rs", ours.seconds * 1000,
        ),
        Result("its processor time", ours.processor, "s", None, loading.processor, "s of delta-rs"),
        Result("its memory", ours.memory / 1e6, "MB", Target("≤", 1000), loading.memory / 1e6, "MB of delta-rs"),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a process: seconds by the clock and of processors, and bytes that were resident at most."""

    seconds: float
    processor: float
    memory: int


def measured(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    started = perf_counter()
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss * unit)


def planned(root: Path, files: int) -> list[Result]:
    """A query that one file can answer: the log is read anew each time, and all other files are ruled out."""
    wanted = files // 2 * ROWS
    with delta.connect() as connection:

        def ours() -> object:
            query = f"SELECT count(*) FROM read_delta('{root}') WHERE id = {wanted}"
            return connection.execute(query).fetchall()

        def theirs() -> object:
            query = f"SELECT count(*) FROM t WHERE id = {wanted}"
            return pa.table(QueryBuilder().register("t", DeltaTable(str(root))).execute(query))

        took, reference = in_turns(ours, theirs)
    return [
        Result(
            "one file read in place (read_delta)", p50(took), "ms", None, p50(reference),
            "ms by delta-rs", p50(took), p99(took),
        )
    ]  # fmt: skip


def in_turns(*acts: Callable[[], object]) -> list[list[float]]:
    """Milliseconds of each act, after a first round that doesn't count."""
    took: list[list[float]] = [[] for _ in acts]
    for _ in range(ROUNDS + 1):
        for act, seconds in zip(acts, took, strict=True):
            started = perf_counter()
            act()
            seconds.append(perf_counter() - started)
    return [milliseconds(each[1:]) for each in took]


def followed(bench: Bench, root: Path, appends: int) -> list[Result]:
    """The first version after the import apart: the server hasn't seen the table yet."""
    rest, table = Rest(bench.uri, bench.headers), DeltaTable(str(root))
    rows = pa.table({"id": pa.array([-1], pa.int64()), "value": [0.5], "name": ["new"]})
    lags, writes = [], []
    for _ in range(1 + appends):
        started = perf_counter()
        write_deltalake(table, rows, mode="append")
        written = perf_counter()
        writes.append(written - started)
        wait_for(rest, table.version(), written + TIMEOUT)
        lags.append(perf_counter() - written)
    rest.close()
    took = milliseconds(lags[1:])
    return [
        Result("lag of the first version", lags[0], "s"),
        Result(
            "lag of a version that is followed", p50(took), "ms", Target("≤", 1000), p50(milliseconds(writes)),
            "ms writing it, by delta-rs", p50(took), p99(took),
        ),
    ]  # fmt: skip


def wait_for(rest: Rest, version: int, until: float) -> None:
    while True:
        answer = rest.ask("GET", f"/namespaces/{NAMESPACE}/tables/{TABLE}?snapshots=refs")
        metadata = orjson.loads(answer)["metadata"]
        newest = next(each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"])
        if newest["summary"]["delta.version"] == str(version):
            return
        if perf_counter() > until:
            raise TimeoutError(f"version {version} hasn't come: {newest['summary']['delta.version']} is the newest")
        sleep(PAUSE)


if __name__ == "__main__":
    main()
