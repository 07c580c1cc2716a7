"""What one more commit writes as a table's history grows: files, by kind, and rows of SQL.

All snapshots stay listed, so metadata.json grows with them. Manifests and lists should stay about flat: manifests are
packed ten at a time, so a file is rewritten once per order of magnitude. Each line is the mean of the last hundred
commits, and its reference that of the first hundred, in which the packing is included, too.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from duckicelake.postgres.embedded import build_embedded_url
from scripts.bench_job.client import Appender, LocalFiles, Rest
from scripts.bench_job.results import Result, Target, options_of, report
from scripts.bench_job.servers import running_bench

ENDS: Final = 100
KINDS: Final = {"list": "manifest lists", "manifest": "manifests", "metadata": "metadata.json"}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one commit wrote: bytes by kind of file, and rows."""

    written: Counter[str]
    rows: int


def main() -> None:
    options = options_of(__doc__, commits=(500, "how many commits"), files=(5, "data files in each"))
    commits = 2 * ENDS if options.quick else options.commits
    costs = measure(commits, options.files)
    report(f"What commits of {options.files} files write, the last {ENDS} of {commits:,}", results(costs), options)


def measure(commits: int, files: int) -> list[Cost]:
    with running_bench() as bench, psycopg.connect(build_embedded_url(bench.folder), autocommit=True) as connection:
        rest = Rest(bench.uri, bench.headers)
        rest.create_namespace()
        uploads = Uploads()
        appender = Appender(rest, uploads, "t", rest.create_table("t"))
        costs = []
        rows = count_rows(connection)
        for _ in range(commits):
            appender.append(files)
            before, rows = rows, count_rows(connection)
            costs.append(Cost(uploads.new(appender), rows - before))
        return costs


def results(costs: Sequence[Cost]) -> list[Result]:
    first, last = costs[:ENDS], costs[-ENDS:]
    found = []
    for kind, name in KINDS.items():
        start, end = (sum(cost.written[kind] for cost in part) / ENDS for part in (first, last))
        found.append(Result(f"{name}, a commit", end, "bytes", None, start, "the first"))
    start, end = (sum(cost.rows for cost in part) / ENDS for part in (first, last))
    found.append(Result("rows of SQL, a commit", end, "rows", Target("≤", 1.2, "ratio"), start, "the first"))
    return found


class Uploads(LocalFiles):
    """The client's files, which are told from the server's, and those of the server that were seen already."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def write(self, location: str, data: bytes) -> None:
        self._known.add(Path(location).name)
        super().write(location, data)

    def new(self, table: Appender) -> Counter[str]:
        """Bytes, by kind, of what the server wrote for the table since it was asked last."""
        found: Counter[str] = Counter()
        for path in Path(table.metadata["location"].removeprefix("file:"), "metadata").iterdir():
            if path.name not in self._known:
                self._known.add(path.name)
                found[kind_of(path.name)] += path.stat().st_size
        return found


def kind_of(name: str) -> str:
    return "list" if name.startswith("snap-") else "metadata" if name.endswith(".json") else "manifest"


def count_rows(connection: psycopg.Connection) -> int:
    """Of DuckLake's tables and ours."""
    names = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() "
        "AND (table_name LIKE 'ducklake%' OR table_name LIKE 'duckicelake%')"
    ).fetchall()
    counts = " + ".join(f"(SELECT count(*) FROM {name})" for (name,) in names)
    row = connection.execute(f"SELECT {counts}".encode()).fetchone()
    assert row is not None
    return int(row[0])


if __name__ == "__main__":
    main()
