"""Sixteen clients that append one file each as fast as they can, on local files, on tables of their own and on one.

The one table puts appends on top of each other (`ducklake.append-rebase`), so no client may see a conflict. How long
Postgres and all other writers are kept waiting for one client's commit is asked of the server's own metrics. For scale:
Iceberg's Java reference server with the same clients on the same tables; and the same clients, which take their part of
the machine, with a bare Starlette route that gives each the same answer at once.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final
from urllib.request import Request, urlopen

from scripts.bench_job.client import NAMESPACE, Appender, LocalFiles, Rest, milliseconds
from scripts.bench_job.crowd import Rush, rush
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, java_is_there, running_bench, running_java, running_starlette

CLIENTS: Final = 16
WORKERS: Final = 2
LISTED: Final = {"ducklake.max-listed-snapshots": "100"}
REBASE: Final = {"ducklake.append-rebase": "true"}
_SECTION: Final = re.compile(r'duckicelake_phase_seconds_bucket\{le="([^"]+)",phase="critical_section"\} (\S+)')


def main() -> None:
    options = options_of(__doc__, seconds=(15, "seconds of each rush"))
    seconds = 4 if options.quick else options.seconds
    results = [*tables_of_their_own(seconds), *one_table(seconds), *critical_section(100 if options.quick else 500)]
    report(f"Commits of {CLIENTS} clients, one file each", results, options)


def tables_of_their_own(seconds: float) -> Iterator[Result]:
    reference = java(CLIENTS, seconds)
    with running_bench(workers=WORKERS) as bench:
        found = rush(bench.uri, bench.headers, clients=CLIENTS, tables=CLIENTS, seconds=seconds, properties=LISTED)
        alone = clients_alone(bench, seconds / 2)
    yield result(f"{CLIENTS} tables, {WORKERS} workers", found, Target("≥", 250), reference)
    yield result("the same clients, HTTP alone", alone)


def clients_alone(bench: Bench, seconds: float) -> Rush:
    """What the clients do where each commit is answered with the first table as it is now."""
    rest = Rest(bench.uri, bench.headers)
    answer = rest.ask("GET", f"/namespaces/{NAMESPACE}/tables/t0")
    rest.close()
    with running_starlette(answer) as uri:
        return rush(uri, {}, clients=CLIENTS, tables=CLIENTS, seconds=seconds)


def one_table(seconds: float) -> Iterator[Result]:
    reference = java(1, seconds)
    for workers in (1, WORKERS):
        with running_bench(workers=workers) as bench:
            properties = REBASE | LISTED
            found = rush(bench.uri, bench.headers, clients=CLIENTS, tables=1, seconds=seconds, properties=properties)
        yield result(f"one table, append-rebase, workers: {workers}", found, Target("≥", 200), reference)
        yield Result("the same, conflicts that clients saw", found.conflicts, "", Target("≤", 0))


def java(tables: int, seconds: float) -> float | None:
    """Commits a second of Java's reference server, None where there is none."""
    if not java_is_there():
        return None
    with running_java() as uri:
        return rush(uri, {}, clients=CLIENTS, tables=tables, seconds=seconds).per_second


def result(name: str, found: Rush, target: Target | None = None, reference: float | None = None) -> Result:
    took = milliseconds(found.seconds)
    return Result(name, found.per_second, "commits/s", target, reference, "Java's server", p50(took), p99(took))


def critical_section(commits: int) -> Iterator[Result]:
    with running_bench() as bench:
        rest = Rest(bench.uri, bench.headers)
        rest.create_namespace()
        appender = Appender(rest, LocalFiles(), "t", rest.create_table("t", properties=LISTED))
        for _ in range(commits):
            appender.append()
        half = median_of_section(bench)
    yield Result("from the snapshot row to COMMIT, one commit", half * 1000, "ms", Target("≤", 2))


def median_of_section(bench: Bench) -> float:
    """Seconds, between the histogram's bounds as if evenly spread."""
    with urlopen(Request(f"{bench.uri}/metrics", headers=dict(bench.headers)), timeout=60) as answer:
        bounds = [(float(bound), float(count)) for bound, count in _SECTION.findall(answer.read().decode())]
    half = bounds[-1][1] / 2
    for (low, before), (high, upto) in pairwise([(0.0, 0.0), *bounds]):
        if upto >= half:
            return low + (high - low) * (half - before) / (upto - before)
    raise RuntimeError("the server's metrics don't say how long the critical section takes")


if __name__ == "__main__":
    main()
