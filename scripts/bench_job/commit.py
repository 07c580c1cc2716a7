"""One client's appends of one file each over HTTP, on local files, by one worker that asks who comes.

What is counted is the time from sending a commit to having read its answer, without the client's own uploads. First
with a table that lists 100 snapshots, then with one that lists all of them, where metadata.json and the answer grow.
"Flat" is the median of the last 100 commits against that of the first 100. For scale: what a commit is made of takes by
itself on this machine (`commit_limits`); Iceberg's Java reference server with the same client; and PyIceberg's appends,
uploads included, beside those to its own SqlCatalog on SQLite.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from scripts.bench_job.client import Appender, LocalFiles, Rest, milliseconds
from scripts.bench_job.commit_limits import Exchange, limits
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import java_is_there, running_bench, running_java

LISTED: Final = {"ducklake.max-listed-snapshots": "100"}
ENDS: Final = 100
JAVA_COMMITS: Final = 200
LIMITED: Final = 500
PYICEBERG_COMMITS: Final = 100


def main() -> None:
    options = options_of(__doc__, commits=(2000, "how many commits"))
    commits = 300 if options.quick else options.commits
    results = [*short(commits), *long(commits), *java(min(commits, JAVA_COMMITS)), *pyiceberg()]
    report("Commits of one client, one file each", results, options)


def short(commits: int) -> Iterator[Result]:
    found, last = appended(commits, LISTED)
    yield rate(
        f"{commits} appends, 100 snapshots listed, answers of {len(last.answer):,} bytes", found, Target("≥", 150)
    )
    yield flatness("the same, last 100 against first 100", found, Target("≤", 1.2, "ratio"))
    parts = list(limits(last, min(commits, LIMITED)))
    yield from parts
    total = sum(each.measured for each in parts)
    yield Result("the commits, against all four one after the other", p50(milliseconds(found)), "ms", None, total, "ms")


def long(commits: int) -> Iterator[Result]:
    found, end = appended(commits, {})
    yield rate(f"{commits} appends, all listed", found)
    yield flatness("the same, last 100 against first 100", found)
    last, size = found[-ENDS:], len(end.answer)
    sent = size * len(last) / sum(last) / 1e6
    yield Result(f"the same, answers of {size:,} bytes at the end", sent, "MB/s", p50=p50(milliseconds(last)))


def java(commits: int) -> Iterator[Result]:
    if not java_is_there():
        return
    with running_java() as uri:
        yield rate(f"{commits} appends, Java's reference server, all listed", append(Rest(uri), commits, {})[0])


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


def appended(commits: int, properties: Mapping[str, str]) -> tuple[Sequence[float], Exchange]:
    """(seconds of each commit, one like the last) on a lake of its own."""
    with running_bench() as bench:
        return append(Rest(bench.uri, bench.headers), commits, properties)


def append(rest: Rest, commits: int, properties: Mapping[str, str]) -> tuple[Sequence[float], Exchange]:
    rest.create_namespace()
    appender = Appender(rest, LocalFiles(), "t", rest.create_table("t", properties=properties))
    for _ in range(commits):
        metadata = appender.append()
    answer, listed = rest.ask("GET", appender.path), appender.files.read(metadata["snapshots"][-1]["manifest-list"])
    last = Exchange(appender.prepare(), answer, listed)
    rest.close()
    return appender.seconds, last


def rate(name: str, seconds: Sequence[float], target: Target | None = None) -> Result:
    took = milliseconds(seconds)
    return Result(name, len(seconds) / sum(seconds), "commits/s", target, p50=p50(took), p99=p99(took))


def flatness(name: str, seconds: Sequence[float], target: Target | None = None) -> Result:
    first, last = p50(milliseconds(seconds[:ENDS])), p50(milliseconds(seconds[-ENDS:]))
    return Result(name, last, "ms", target, first, "ms", last, p99(milliseconds(seconds[-ENDS:])))


if __name__ == "__main__":
    main()
