"""Appends of one file each to a table of very many files, in turns with the same to a table of 100: time and bytes.

Both tables get their files in one commit; of the large one's the memory is reported, the server's whole process. Bytes
are those of the manifests, lists and metadata.json that the server wrote, by the commit.
"""

from pathlib import Path
from threading import Event, Thread
from typing import Final, Self

from scripts.bench_job.client import Appender, LocalFiles, Rest, milliseconds
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, running_bench

SMALL: Final = 100
LISTED: Final = {"ducklake.max-listed-snapshots": "20"}


def main() -> None:
    options = options_of(__doc__, files=(100_000, "files of the large table"), commits=(100, "appends to each"))
    files = 10_000 if options.quick else options.files
    with running_bench() as bench:
        results = measure(bench, files, options.commits)
    report(f"Appends to tables of {SMALL} and of {files:,} files", results, options)


def measure(bench: Bench, files: int, commits: int) -> list[Result]:
    rest = Rest(bench.uri, bench.headers)
    rest.create_namespace()
    uploads = Uploads()
    small, large = (Appender(rest, uploads, name, rest.create_table(name, properties=LISTED)) for name in "sl")
    small.append(SMALL)
    with Memory(bench) as memory:
        large.append(files)
    filled = large.seconds[-1]
    for table in (small, large):
        table.append()
        table.seconds.clear()
    written = {table.name: 0 for table in (small, large)}
    for _ in range(commits):
        for table in (small, large):
            before = uploads.others(table)
            table.append()
            written[table.name] += uploads.others(table) - before
    took = {table.name: milliseconds(table.seconds) for table in (small, large)}
    each = {name: total / commits for name, total in written.items()}
    return [
        Result(
            f"one file more, {files:,} files", p50(took["l"]), "ms", Target("≤", 1.3, "ratio"), p50(took["s"]),
            f"ms with {SMALL}", p50(took["l"]), p99(took["l"]),
        ),
        Result("bytes written for it", each["l"], "bytes", Target("≤", 1.3, "ratio"), each["s"], f"with {SMALL}"),
        Result(f"{files:,} files in one commit", files / filled, "files/s", None, None, "", filled * 1000),
        Result("memory of that", memory.peak / 1e6, "MB", Target("≤", 500), memory.before / 1e6, "MB before"),
    ]  # fmt: skip


class Uploads(LocalFiles):
    """The client's files, which are told from the server's."""

    def __init__(self) -> None:
        self._written: set[str] = set()

    def write(self, location: str, data: bytes) -> None:
        self._written.add(Path(location).name)
        super().write(location, data)

    def others(self, table: Appender) -> int:
        """Bytes of all that the server ever wrote for the table."""
        folder = Path(table.metadata["location"].removeprefix("file:"), "metadata")
        return sum(path.stat().st_size for path in folder.iterdir() if path.name not in self._written)


class Memory:
    """The most that the server's largest process had resident while the block ran; looked at 20 times a second."""

    def __init__(self, bench: Bench) -> None:
        self._processes = bench.processes()
        self._over = Event()
        self._thread = Thread(target=self._watch)
        self.before = self.peak = self._now()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        return max(int(each.memory_info().rss) for each in self._processes)


if __name__ == "__main__":
    main()
