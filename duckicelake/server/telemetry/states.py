"""States of the server, read whenever metrics are scraped: the pool, caches, connections, the process."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge

Statistics = Callable[[], Mapping[str, int]]

_STATM: Final = Path("/proc/self/statm")


def counter(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Counter:
    """Make a counter, summed over all workers."""
    return Counter(f"duckicelake_{name}", text, labels, registry=registry)


def gauge(
    registry: CollectorRegistry, name: str, text: str, *labels: str, mode: Literal["livesum", "livemax"] = "livesum"
) -> Gauge:
    """Make a gauge, summed over live workers; livemax: of something that all workers see alike."""
    return Gauge(f"duckicelake_{name}", text, labels, registry=registry, multiprocess_mode=mode)


class MirroredCounter:
    """Mirror a count that another module keeps."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._seen = 0.0

    def look(self, now: float) -> None:
        self._counter.inc(max(0.0, now - self._seen))
        self._seen = now


class RequestMetrics:
    """Counted by the event loop alone, so without a lock. ended: by method, route and hundreds of the status."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.running = 0
        self.ended: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._running = gauge(registry, "requests_running", "Requests being answered now")
        self._requests = counter(registry, "requests", "Requests answered", "method", "route", "status")
        self._rising: dict[tuple[str, str, int], MirroredCounter] = {}

    def look(self) -> None:
        self._running.set(self.running)
        for key, ended in list(self.ended.items()):
            if key not in self._rising:
                method, route, hundreds = key
                self._rising[key] = MirroredCounter(self._requests.labels(method, route, f"{hundreds}xx"))
            self._rising[key].look(ended)


class FeedMetrics:
    """Counts of the event loop. sent: changes, once per reader."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.readers = 0
        self.sent = 0
        self._readers = gauge(registry, "feed_readers", "Readers that wait for changes")
        self._sent = MirroredCounter(counter(registry, "feed_events", "Changes that readers of the change feed got"))

    def look(self) -> None:
        self._readers.set(self.readers)
        self._sent.look(self.sent)


class PoolMetrics:
    """Of connections to Postgres."""

    def __init__(self, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._statistics = statistics
        self._connections = gauge(registry, "pool_connections", "Postgres connections", "state")
        self._waiting = gauge(registry, "pool_waiting", "Requests waiting for a connection")
        self._most = gauge(registry, "pool_max", "Most connections")
        self._waits = MirroredCounter(counter(registry, "pool_waits", "Times that a thread waited for a connection"))
        self._waited = MirroredCounter(counter(registry, "pool_wait_seconds", "Time that was waited for connections"))

    def look(self) -> None:
        statistics = self._statistics()
        size, idle = statistics.get("pool_size", 0), statistics.get("pool_available", 0)
        self._connections.labels("used").set(size - idle)
        self._connections.labels("idle").set(idle)
        self._waiting.set(statistics.get("requests_waiting", 0))
        self._most.set(statistics.get("pool_max", 0))
        self._waits.look(statistics.get("requests_queued", 0))
        self._waited.look(statistics.get("requests_wait_ms", 0) / 1000)


class CacheMetrics:
    """Of tables in memory."""

    def __init__(self, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._statistics = statistics
        self._tables = gauge(registry, "cached_tables", "Tables in memory")
        self._bytes = gauge(registry, "cached_bytes", "What the tables in memory take, about")
        loads = counter(registry, "table_loads", "Tables served, by cache outcome", "cache")
        self._hits, self._misses = MirroredCounter(loads.labels("hit")), MirroredCounter(loads.labels("miss"))

    def look(self) -> None:
        statistics = self._statistics()
        self._tables.set(statistics.get("tables", 0))
        self._bytes.set(statistics.get("bytes", 0))
        self._hits.look(statistics.get("hits", 0))
        self._misses.look(statistics.get("misses", 0))


class ScanMetrics:
    """Of manifests in memory, by which scans are planned."""

    def __init__(self, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._statistics = statistics
        self._manifests = gauge(registry, "scan_cached_manifests", "Manifests in memory to plan scans by")
        self._bytes = gauge(registry, "scan_cached_bytes", "What these manifests take")
        self._read = MirroredCounter(counter(registry, "scan_manifests_read", "Manifests read from Postgres to plan"))
        unkept = counter(registry, "scan_arrays_unkept", "What was read of manifests and couldn't be kept in Postgres")
        self._unkept = MirroredCounter(unkept)

    def look(self) -> None:
        statistics = self._statistics()
        self._manifests.set(statistics.get("manifests", 0))
        self._bytes.set(statistics.get("bytes", 0))
        self._read.look(statistics.get("read", 0))
        self._unkept.look(statistics.get("unkept", 0))


class OutsideMetrics:
    """Of decisions that a service outside makes."""

    def __init__(self, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._statistics = statistics
        decisions = counter(registry, "outside_decisions", "Outside decisions, by where they came from", "outcome")
        self._decisions = {name: MirroredCounter(decisions.labels(name)) for name in ("asked", "cached", "failed")}
        self._refused = MirroredCounter(counter(registry, "outside_refusals", "Outside decisions that take something"))
        self._requests = MirroredCounter(counter(registry, "outside_requests", "Requests for outside decisions"))
        self._seconds = MirroredCounter(counter(registry, "outside_seconds", "Time that these requests took"))

    def look(self) -> None:
        statistics = self._statistics()
        for name, mirrored in self._decisions.items():
            mirrored.look(statistics.get(name, 0))
        self._refused.look(statistics.get("refused", 0))
        self._requests.look(statistics.get("requests", 0))
        self._seconds.look(statistics.get("ms", 0) / 1000)


class ReadMetrics:
    """Of what engines read."""

    def __init__(self, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._statistics = statistics
        reads = counter(registry, "reads", "What engines read of tables, by what became of noting it", "outcome")
        self._recorded, self._dropped = (
            MirroredCounter(reads.labels("recorded")),
            MirroredCounter(reads.labels("dropped")),
        )

    def look(self) -> None:
        statistics = self._statistics()
        self._recorded.look(statistics.get("recorded", 0))
        self._dropped.look(statistics.get("dropped", 0))


class ConnectionMetrics:
    """Of clients."""

    def __init__(self, statistics: Statistics, registry: CollectorRegistry) -> None:
        self._statistics = statistics
        self._open = gauge(registry, "connections", "Connections of clients")
        shut = counter(registry, "connections_shut", "Connections shut at a limit: idle ones, new ones", "kind")
        self._evicted, self._refused = MirroredCounter(shut.labels("idle")), MirroredCounter(shut.labels("new"))

    def look(self) -> None:
        statistics = self._statistics()
        self._open.set(statistics.get("open", 0))
        self._evicted.look(statistics.get("evicted", 0))
        self._refused.look(statistics.get("refused", 0))


class ProcessMetrics:
    """State of the process, from the operating system."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._resident = gauge(registry, "resident_bytes", "Memory of the server's processes, without Postgres's")
        self._seconds = MirroredCounter(counter(registry, "cpu_seconds", "Time of processors that they took"))

    def look(self) -> None:
        self._seconds.look(time.process_time())
        if _STATM.exists():  # on Linux
            self._resident.set(int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
