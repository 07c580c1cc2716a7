"""One client's appends of one file each over HTTP, on local files, by one worker that asks who comes.

What is counted is the time from sending a commit to having read its answer, without the client's own uploads. First
with a table that lists 100 snapshots, then with one that lists all of them, where metadata.json and the answer grow.
The growth is the median of the last 100 commits against that of the first 100; and the mean CPU that server and
Postgres take for one, which on a busy machine is the better measure. For scale: what the last commit is made of takes
by itself on this machine (`commit_limits`), all JSON encoded anew, and how that grows as the answer does; Iceberg's
Java reference server with the same client; and PyIceberg's appends, uploads included, beside those to its own
SqlCatalog on SQLite.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from scripts.bench_job.client import Appender, LocalFiles, Rest, milliseconds
from scripts.bench_job.commit_limits import Exchange, Part, limits
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import child_seconds, java_is_there, running_bench, running_java

LISTED: Final = {"ducklake.max-listed-snapshots": "100"}
ENDS: Final = 100
JAVA_COMMITS: Final = 200
LIMITED: Final = 500
FLOOR: Final = Target("≤", 4, "ratio")
FLAT: Final = Target("≤", 1.2, "ratio")
STEEP: Final = Target("≤", 1.2)
PYICEBERG_COMMITS: Final = 100


@dataclass(frozen=True, slots=True)
class Commits:
    """What commits took.

    Attributes:
        cpu: Seconds that server and Postgres had used, by the number of commits until then.
        early: A commit like one after the first hundred.
        last: A commit like the last.

    """

    seconds: Sequence[float]
    cpu: Mapping[int, float]
    early: Exchange
    last: Exchange

    def cpu_milliseconds(self, start: int, end: int) -> float:
        """CPU of one commit on average, of those between two numbers."""
        return 1000 * (self.cpu[end] - self.cpu[start]) / (end - start)


def main() -> None:
    options = options_of(__doc__, commits=(2000, "how many commits"))
    hundreds = max(3, round(options.commits / ENDS)) * ENDS
    few, times = (300, 100) if options.quick else (hundreds, LIMITED)
    results = [*short(few, times), *long(hundreds, times), *java(min(hundreds, JAVA_COMMITS)), *pyiceberg()]
    report("Commits of one client, one file each", results, options)


def short(commits: int, times: int) -> Iterator[Result]:
    """times: how often each part of a commit is measured by itself."""
    found = appended(commits, LISTED)
    name = f"{commits} appends, 100 snapshots listed"
    yield rate(f"{name}, answers of {len(found.last.answer):,} bytes", found.seconds, Target("≥", 150))
    yield from growth(name, found, FLAT)
    parts = list(limits(found.last, times))
    yield from (part.result() for part in parts)
    took, (alone, cpu_alone) = p50(milliseconds(found.seconds)), floor(parts)
    yield Result("the commits, against all four one after the other", took, "ms", FLOOR, alone, "ms")
    cpu = found.cpu_milliseconds(ENDS, commits)
    yield Result("the same by CPU", cpu, "ms", FLOOR, cpu_alone, "ms")


def floor(parts: Iterable[Part]) -> tuple[float, float]:
    """(milliseconds, milliseconds of CPU) of all parts of a commit, one after the other."""
    known = list(parts)
    return sum(p50(milliseconds(part.seconds)) for part in known), 1000 * sum(part.cpu for part in known)


def long(commits: int, times: int) -> Iterator[Result]:
    """times: as for `short`."""
    found = appended(commits, {})
    name = f"{commits} appends, all listed"
    yield rate(f"{name}, answers of {len(found.last.answer):,} bytes at the end", found.seconds)
    grown = list(growth(name, found))
    yield from grown
    yield from steepness(found, grown, times)


def growth(name: str, found: Commits, target: Target | None = None) -> Iterator[Result]:
    """The last commits against the first; by CPU against the second hundred, since a server warms up in the first."""
    yield flatness(f"{name}: the last {ENDS} against the first", found.seconds, target)
    commits = len(found.seconds)
    warm, end = found.cpu_milliseconds(ENDS, 2 * ENDS), found.cpu_milliseconds(commits - ENDS, commits)
    yield Result("the same by CPU, against the second 100", end, "ms", target, warm, "ms")


def steepness(found: Commits, grown: Iterable[Result], times: int) -> Iterator[Result]:
    """How the floor grows with the same bytes, and what a commit gains for each millisecond that its floor gains."""
    before, after = (floor(limits(exchange, times)) for exchange in (found.early, found.last))
    for kind, commit, low, high in zip(("", " by CPU"), grown, before, after, strict=True):
        sizes = f"answers of {len(found.last.answer):,} and {len(found.early.answer):,} bytes"
        yield Result(f"their floor{kind}, with {sizes}", high, "ms", None, low, "ms")
        gained = commit.measured - (commit.reference or 0)
        yield Result(f"what a commit gained{kind}, for each ms of its floor", gained / (high - low), "ms", STEEP)


def appended(commits: int, properties: Mapping[str, str]) -> Commits:
    """Append on a lake of its own."""
    with running_bench() as bench:
        return append(Rest(bench.uri, bench.headers), commits, properties)


def java(commits: int) -> Iterator[Result]:
    if not java_is_there():
        return
    with running_java() as uri:
        yield rate(f"{commits} appends, Java's reference server, all listed", append(Rest(uri), commits, {}).seconds)


def pyiceberg() -> Iterator[Result]:
    """Both list all snapshots, and both have local files."""
    with running_bench(auth=False) as bench, tempfile.TemporaryDirectory(prefix="duckicelake-bench-") as folder:
        ours = pyiceberg_appends(RestCatalog("rest", uri=bench.uri))
        theirs = pyiceberg_appends(
            SqlCatalog("sql", uri=f"sqlite:///{folder}/lake.db", warehouse=Path(folder).as_uri())
        )
    took, reference = milliseconds(ours), len(theirs) / sum(theirs)
    name = f"{PYICEBERG_COMMITS} appends by PyIceberg"
    yield Result(name, len(ours) / sum(ours), "commits/s", None, reference, "its SqlCatalog", p50(took), p99(took))


def pyiceberg_appends(catalog: Catalog) -> list[float]:
    rows = pa.table({"id": [1, 2, 3]})
    catalog.create_namespace("py")
    table = catalog.create_table("py.t", rows.schema)
    seconds = []
    for _ in range(PYICEBERG_COMMITS):
        began = perf_counter()
        table.append(rows)
        seconds.append(perf_counter() - began)
    return seconds


def append(rest: Rest, commits: int, properties: Mapping[str, str], early: int = ENDS) -> Commits:
    """Append to a new table. early: how many commits come before the one that is kept as `Commits.early`."""
    rest.create_namespace()
    appender = Appender(rest, LocalFiles(), "t", rest.create_table("t", properties=properties))
    cpu, exchanges = {}, []
    for number in range(commits):
        if number % ENDS == 0:
            cpu[number] = child_seconds()
        appender.append()
        if number + 1 in {early, commits}:
            exchanges.append(exchange_of(appender))
    cpu[commits] = child_seconds()
    rest.close()
    return Commits(appender.seconds, cpu, exchanges[0], exchanges[-1])


def exchange_of(appender: Appender) -> Exchange:
    """Build a commit like the client's last; its files are uploaded, and it isn't sent."""
    answer = appender.rest.ask("GET", appender.path)
    listed = appender.files.read(appender.metadata["snapshots"][-1]["manifest-list"])
    return Exchange(appender.prepare(), answer, listed)


def rate(name: str, seconds: Sequence[float], target: Target | None = None) -> Result:
    took = milliseconds(seconds)
    return Result(name, len(seconds) / sum(seconds), "commits/s", target, p50=p50(took), p99=p99(took))


def flatness(name: str, seconds: Sequence[float], target: Target | None = None) -> Result:
    first, last = p50(milliseconds(seconds[:ENDS])), p50(milliseconds(seconds[-ENDS:]))
    return Result(name, last, "ms", target, first, "ms", last, p99(milliseconds(seconds[-ENDS:])))


if __name__ == "__main__":
    main()
