"""A thousand readers of the change feed of one worker, while a client commits: how soon each is told.

Measured is the time from a commit's answer to its event at a reader; events that were there before the answer count as
0. The reference is one reader alone on the same server. Then the readers have nothing to read, and what the server's
processes use meanwhile is the cost of an idle feed.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from scripts.bench_job.client import Appender, LocalFiles, Rest
from scripts.bench_job.feed_readers import Reported, reading
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, running_bench

COMMITS_PER_SECOND: Final = 5
IDLE_SECONDS: Final = 10
_SETTLE_SECONDS: Final = 2.0
"""For the last events to arrive."""


def main() -> None:
    options = options_of(__doc__, readers=(1000, "readers"), commits=(100, "commits"))
    commits = 20 if options.quick else options.commits
    with running_bench() as bench:
        rest = Rest(bench.uri, bench.headers)
        rest.create_namespace()
        writer = Appender(
            rest, LocalFiles(), "t", rest.create_table("t", properties={"ducklake.max-listed-snapshots": "20"})
        )
        alone, _ = report_delays(bench, writer, commits, 1)
        waited, lost = report_delays(bench, writer, commits, options.readers)
        idle = idle_share(bench, options.readers)
    report(f"{options.readers} readers of one worker's change feed", list(results(alone, waited, lost, idle)), options)


def results(alone: Sequence[float], waited: Sequence[float], lost: int, idle: float) -> Iterator[Result]:
    name = "from a commit's answer to its event, p99"
    yield Result(name, p99(waited), "ms", Target("≤", 100), p99(alone), "one reader", p50(waited), p99(waited))
    yield Result("events that were not told, or twice, or out of order", lost, "", Target("≤", 0))
    yield Result("processors used by an idle feed", idle * 100, "% of one", Target("≤", 5))


def report_delays(bench: Bench, writer: Appender, commits: int, readers: int) -> tuple[list[float], int]:
    """Milliseconds from each commit's answer to each reader's event; how many weren't told just what happened."""
    answered: dict[int, float] = {}
    with reading(bench.uri, bench.headers, readers) as found:
        for _ in range(commits):
            metadata = writer.append()
            answered[metadata["current-snapshot-id"]] = time.perf_counter()
            time.sleep(1 / COMMITS_PER_SECOND)
        time.sleep(_SETTLE_SECONDS)
        reported = found.end()
    waited = [
        max(0.0, at - answered[snapshot]) * 1000 for each in reported for snapshot, at in each if snapshot in answered
    ]
    return waited, sum(_is_wrong(each, list(answered)) for each in reported)


def _is_wrong(reported: Reported, snapshots: Sequence[int]) -> bool:
    return [snapshot for snapshot, _ in reported] != snapshots


def idle_share(bench: Bench, readers: int) -> float:
    """Of one processor, while nothing happens."""
    with reading(bench.uri, bench.headers, readers):
        time.sleep(_SETTLE_SECONDS)
        before = bench.cpu_seconds()
        time.sleep(IDLE_SECONDS)
        return (bench.cpu_seconds() - before) / IDLE_SECONDS


if __name__ == "__main__":
    main()
