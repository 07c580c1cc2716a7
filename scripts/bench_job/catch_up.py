"""The first load after a thousand commits of DuckDB's to one table, one row each, in the server's own process.

With DuckDB's defaults such rows stay in Postgres and become one Iceberg snapshot; without inlining each commit is a
file and a snapshot of its own, with a manifest and a list, all of which the load writes. The reference is what DuckDB
took for the commits. Before them a first load warms up what is imported once.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

from duckicelake.catalog.table.load import load_current_table
from scripts.bench_job.embedded import Embedded, bench_folder, embedded_lake
from scripts.bench_job.results import Result, Target, options_of, report

COMMITS: Final = 1000
Statement = Callable[[int], str]


def insert(number: int) -> str:
    return f"INSERT INTO t VALUES ({number}, 'x', {number})"


def delete(number: int) -> str:
    return f"DELETE FROM t WHERE id = -{number + 1}"


def either(number: int) -> str:
    return delete(number) if number % 3 == 0 else insert(number)


CASES: Final[tuple[tuple[str, bool, Statement], ...]] = (
    ("inserts, inlined", True, insert),
    ("inserts and deletes, inlined", True, either),
    ("inserts, a file each", False, insert),
    ("deletes from one file, not inlined", False, delete),
)


def main() -> None:
    options = options_of(__doc__, commits=(COMMITS, "how many commits"))
    commits = options.commits // 10 if options.quick else options.commits
    with bench_folder() as folder:
        results = [each for case in CASES for each in caught_up(*case, commits, folder)]
    report("Catch-up", results, options)


def caught_up(name: str, inlining: bool, statement: Statement, commits: int, folder: str) -> Iterator[Result]:
    with embedded_lake(folder) as lake, lake.duckdb(inlining=inlining) as duck:
        duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR, amount INTEGER)")
        duck.execute(f"INSERT INTO t SELECT -i, 'x', i FROM range(1, {commits + 100}) r(i)")
        duck.execute("DELETE FROM t WHERE id = -50")
        load(lake)
        before = time.perf_counter()
        for number in range(commits):
            duck.execute(statement(number))
        took = time.perf_counter() - before
        seconds, cpu, snapshots = load(lake)
    target = Target("≤", 1.0)
    line = f"{commits} {name}: {snapshots} snapshots to write"
    yield Result(line, seconds, "s", target, took, "s in DuckDB")
    yield Result(f"{line}, CPU of the server", cpu, "s")


def load(lake: Embedded) -> tuple[float, float, int]:
    """(seconds, CPU seconds of this process, listed snapshots) of a load."""
    before, cpu = time.perf_counter(), time.process_time()
    table = load_current_table(lake.services, ("main",), "t")
    return time.perf_counter() - before, time.process_time() - cpu, len(table.metadata.snapshots)


if __name__ == "__main__":
    main()
