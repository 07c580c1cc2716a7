"""DuckDB inserts row by row into a table of its own while sixteen clients commit through the server at full speed.

DuckDB tries a commit that loses its snapshot id again, ten times; what then still fails is a failure. The reference is
the same loop on the same lake while no one else writes.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import duckdb
from duckdb_extensions import import_extension

from scripts.bench_job.client import milliseconds
from scripts.bench_job.crowd import rushing
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, running_bench

CLIENTS: Final = 16
WORKERS: Final = 2
LISTED: Final = {"ducklake.max-listed-snapshots": "100"}


@dataclass(slots=True)
class Loop:
    """What a loop of inserts came to: seconds that each took, and what failed."""

    lasted: float
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> None:
    options = options_of(__doc__, seconds=(20, "seconds of the rush"))
    seconds = 6 if options.quick else options.seconds
    with running_bench(workers=WORKERS) as bench, attached(bench) as lake:
        lake.execute("CREATE SCHEMA lake.duck")
        lake.execute("CREATE TABLE lake.duck.t (i BIGINT)")
        alone = insert(lake, min(seconds, 5))
        with rushing(bench.uri, bench.headers, clients=CLIENTS, tables=CLIENTS, properties=LISTED) as found:
            beside = insert(lake, seconds)
    report(f"DuckDB's inserts beside {CLIENTS} clients", [*results(alone, beside, found[0].per_second)], options)


def results(alone: Loop, beside: Loop, rate: float) -> Iterator[Result]:
    took = milliseconds(beside.seconds)
    reference = len(alone.seconds) / alone.lasted
    per_second = len(beside.seconds) / beside.lasted
    name = "DuckDB's inserts while all commit"
    yield Result(name, per_second, "commits/s", Target("≥", 5), reference, "DuckDB alone", p50(took), p99(took))
    yield Result("the same, failures", len(beside.failures), "", Target("≤", 0))
    yield Result("the clients' commits meanwhile", rate, "commits/s")
    for failure in beside.failures:
        print(failure)


@contextmanager
def attached(bench: Bench) -> Iterator[duckdb.DuckDBPyConnection]:
    import_extension("ducklake")
    import_extension("postgres_scanner")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner")
        connection.execute(f"ATTACH '{bench.ducklake_attach}' AS lake")
        yield connection


def insert(lake: duckdb.DuckDBPyConnection, seconds: float) -> Loop:
    loop, end = Loop(seconds), time.perf_counter() + seconds
    while (before := time.perf_counter()) < end:
        try:
            lake.execute("INSERT INTO lake.duck.t VALUES (1)")
        except duckdb.Error as error:
            loop.failures.append(f"{error}"[:300])
        else:
            loop.seconds.append(time.perf_counter() - before)
    return loop


if __name__ == "__main__":
    main()
