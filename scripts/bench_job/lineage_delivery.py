"""What a receiver of lineage events costs: commits while it hangs or takes all, and how many events a second arrive.

Two servers, one of which sends its events to a receiver that never answers, or that takes each at once, get commits of
one file in turn: what is compared was measured in the same seconds, on the same machine with the same load. Then events
that wait in an outbox go to a receiver that answers at once; the reference is OpenLineage's own client, which posts the
same events one after the other without an outbox.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import DEVNULL, PIPE
from typing import Any, Final

from openlineage.client.transport.http import HttpConfig, HttpTransport

from duckicelake.catalog.context.meter import NO_METER
from duckicelake.lineage.delivery import outbox
from duckicelake.lineage.delivery.couriers import DeliveryLimits, deliver_in_background
from duckicelake.lineage.delivery.deliverer import DeliveryObserver
from duckicelake.lineage.delivery.receivers import parse_receivers
from duckicelake.lineage.delivery.transports import open_outlet
from duckicelake.lineage.graph.store import record_events
from scripts.bench_job.client import Appender, LocalFiles, Rest, milliseconds
from scripts.bench_job.embedded import Embedded, embedded_lake
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import ROOT, Bench, running_bench

LISTED: Final = {"ducklake.max-listed-snapshots": "100"}
WARM_UP: Final = 20
BATCH: Final = 500


def main() -> None:
    options = options_of(__doc__, commits=(600, "commits to each server"), events=(5000, "events to deliver"))
    commits, events = (100, 1000) if options.quick else (options.commits, options.events)
    results = [
        *beside(commits, "hangs", "hang", target=Target("≤", 1.05, "ratio")),
        *beside(commits, "takes all"),
        *arriving(events),
    ]
    report("Delivery of lineage events", results, options)


def beside(commits: int, receiver_does: str, *arguments: str, target: Target | None = None) -> Iterator[Result]:
    with (
        receiving(*arguments) as receiver,
        running_bench() as plain,
        running_bench(settings={"DUCKICELAKE_LINEAGE_TRANSPORTS": receiver.uri}) as sending,
    ):
        appenders = [appender_to(plain), appender_to(sending)]
        cpu = [bench.cpu_seconds() for bench in (plain, sending)]
        while len(appenders[0].seconds) < commits:
            for appender in appenders:
                appender.append()
        cpu = [bench.cpu_seconds() - before for bench, before in zip((plain, sending), cpu, strict=True)]
        posts = receiver.taken()
    without, found = (milliseconds(appender.seconds) for appender in appenders)
    name = f"{commits} commits while a receiver {receiver_does}"
    yield Result(f"{name}, p50", p50(found), "ms", target, p50(without), "ms without it", p50(found), p99(found))
    yield Result(f"{name}, p99", p99(found), "ms", None, p99(without), "ms without it")
    yield Result(f"{name}, CPU of the server", cpu[1], "s", None, cpu[0], "s without it")
    yield Result(f"{name}, posts", posts, "")


def appender_to(bench: Bench) -> Appender:
    rest = Rest(bench.uri, bench.headers)
    rest.create_namespace()
    appender = Appender(rest, LocalFiles(), "t", rest.create_table("t", properties=LISTED))
    for _ in range(WARM_UP):
        appender.append()
    appender.seconds.clear()
    return appender


def arriving(count: int) -> Iterator[Result]:
    events = [event(number) for number in range(count)]
    with embedded_lake() as lake, receiving() as receiver:
        seconds, cpu = delivered(lake, receiver, events)
    with receiving() as receiver:
        reference = posted(receiver, events)
    yield Result(f"{count} events of a waiting outbox", count / seconds, "/s", None, count / reference, "its client's")
    yield Result("the same, CPU of a thousand", 1000 * cpu / count, "s")


def delivered(lake: Embedded, receiver: "Receiver", events: list[dict[str, Any]]) -> tuple[float, float]:
    """(seconds, CPU seconds of this process) until all had arrived."""
    outlets = [open_outlet(each) for each in parse_receivers([receiver.uri])]
    outbox.register_receivers(lake.services.database, [outlet.name for outlet in outlets])
    for first in range(0, len(events), BATCH):
        with lake.services.database.transaction() as cursor:
            record_events(cursor, events[first : first + BATCH], origin="catalog")
    began, cpu = time.perf_counter(), time.process_time()
    with deliver_in_background(lake.services, outlets, DeliveryLimits(10**6, 5), DeliveryObserver(NO_METER, print)):
        while receiver.taken() < len(events):
            time.sleep(0.02)
        return time.perf_counter() - began, time.process_time() - cpu


def posted(receiver: "Receiver", events: list[dict[str, Any]]) -> float:
    transport = HttpTransport(HttpConfig(receiver.uri))
    began = time.perf_counter()
    for each in events:
        transport.emit(each)  # type: ignore[arg-type]  # as good as its classes
    return time.perf_counter() - began


def event(number: int) -> dict[str, Any]:
    """One as a commit makes it: some 2,000 bytes."""
    facet = {"_producer": "urn:bench", "_schemaURL": "https://openlineage.io/spec/facets/1-0-0/SchemaDatasetFacet.json"}
    fields = [{"name": f"column_{i}", "type": "bigint", "description": "of the bench"} for i in range(20)]
    return {
        "eventTime": f"2026-01-01T00:00:00.{number:06}Z",
        "eventType": "COMPLETE",
        "producer": "urn:bench",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": f"01890a5d-ac96-774b-bcce-{number:012x}", "facets": {}},
        "job": {"namespace": "bench", "name": f"job{number % 50}", "facets": {}},
        "inputs": [],
        "outputs": [
            {"namespace": "file", "name": f"/lake/t{number % 50}", "facets": {"schema": {**facet, "fields": fields}}}
        ],
    }


@dataclass(frozen=True, slots=True)
class Receiver:
    """The child process `event_receiver`."""

    uri: str
    process: subprocess.Popen[str]

    def taken(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@contextmanager
def receiving(*arguments: str) -> Iterator[Receiver]:
    command = [sys.executable, "-m", "scripts.bench_job.event_receiver", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield Receiver(process.stdout.readline().strip(), process)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
