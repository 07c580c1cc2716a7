"""Many clients at the same time, each with a connection and a thread of its own, that append as fast as they can."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event

from scripts.bench_job.client import Appender, LocalFiles, Rest


@dataclass(frozen=True, slots=True)
class Rush:
    """What a crowd did: seconds that each commit took, conflicts that clients saw, and how long it all lasted."""

    seconds: Sequence[float]
    conflicts: int
    lasted: float

    @property
    def per_second(self) -> float:
        return len(self.seconds) / self.lasted


def rush(
    uri: str,
    headers: Mapping[str, str],
    *,
    clients: int,
    tables: int,
    seconds: float,
    properties: Mapping[str, str] | None = None,
) -> Rush:
    """Let clients append for so long, client k to table k modulo `tables`, which are made first."""
    with rushing(uri, headers, clients=clients, tables=tables, properties=properties) as found:
        time.sleep(seconds)
    return found[0]


@contextmanager
def rushing(
    uri: str, headers: Mapping[str, str], *, clients: int, tables: int, properties: Mapping[str, str] | None = None
) -> Iterator[list[Rush]]:
    """The same for as long as the block runs; the list gets its one element after that."""
    maker = Rest(uri, headers)
    maker.create_namespace()
    made = [maker.create_table(f"t{number}", properties=properties) for number in range(tables)]
    stop, found = Event(), list[Rush]()

    def work(number: int) -> Appender:
        of = number % tables
        appender = Appender(Rest(uri, headers), LocalFiles(), f"t{of}", made[of])
        while not stop.is_set():
            appender.append()
        return appender

    before = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        work_of_all = [pool.submit(work, number) for number in range(clients)]
        try:
            yield found
        finally:
            stop.set()
    appenders = [each.result() for each in work_of_all]
    lasted = time.perf_counter() - before
    took = [each for appender in appenders for each in appender.seconds]
    found.append(Rush(took, sum(appender.conflicts for appender in appenders), lasted))
