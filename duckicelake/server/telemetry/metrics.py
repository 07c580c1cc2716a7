"""Measure the server for Prometheus: counters, histograms, and states read at each scrape."""

import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, Self

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from duckicelake.catalog.context.meter import Outcome, Phase, Retry, Task
from duckicelake.errors import UnavailableError
from duckicelake.server.protocol.connections import TALLY
from duckicelake.server.telemetry.shared_files import delete_dead_gauges, find_shared_folder, reserve_metric_files
from duckicelake.server.telemetry.states import (
    CacheMetrics,
    ConnectionMetrics,
    FeedMetrics,
    OutsideMetrics,
    PoolMetrics,
    ProcessMetrics,
    ReadMetrics,
    RequestMetrics,
    ScanMetrics,
    Statistics,
    counter,
    gauge,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})
_KNOWN_REPORTS = frozenset({"scan-report", "commit-report"})
_BUCKET_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_BUCKET_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_REFRESH_SECONDS: Final = 1.0
MAX_WAREHOUSE_LABELS: Final = 100
"""Warehouses beside the first that have series of their own in a worker."""

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """Count and time what the app does; the `Meter` of its use cases.

    `pool`, `cache`, `reads` and `scans` give the state of the connection pool, the table cache, the log of reads and
    the cache of plans. They are read, like the operating system, when metrics are scraped; and once a second where
    several workers share metrics.
    """

    def __init__(
        self,
        pool: Statistics,
        cache: Statistics = dict,
        reads: Statistics = dict,
        scans: Statistics = dict,
        outside: Statistics = dict,
    ) -> None:
        self._folder = find_shared_folder()
        if self._folder is not None:
            reserve_metric_files(self._folder)
        self._registry = CollectorRegistry()
        self._looks = threading.Lock()
        self._requests = RequestMetrics(self._registry)
        self._feed = FeedMetrics(self._registry)
        self._mirrored = (
            self._requests,
            self._feed,
            PoolMetrics(pool, self._registry),
            CacheMetrics(cache, self._registry),
            ReadMetrics(reads, self._registry),
            ScanMetrics(scans, self._registry),
            OutsideMetrics(outside, self._registry),
            ConnectionMetrics(TALLY.statistics, self._registry),
            ProcessMetrics(self._registry),
        )
        self._seconds = self._histogram("request_seconds", "Time to answer", "method", "route")
        self._logins = self._counter("logins", "Requests for tokens, by what became of them", "outcome")
        self._shed = self._counter("requests_shed", "Requests refused because too many were under way")
        self._reports = self._counter("metrics_reports", "Metrics reports received from engines", "report")
        self._conflicts = self._counter("conflicts", "Requests answered with 409, by what didn't hold", "kind")
        self._retries = self._counter("retries", "Work done again within a request, by why", "reason")
        self._jobs = self._counter("jobs", "Jobs of the pipeline that ended, by what came of them", "kind", "result")
        self._phases = self._histogram("phase_seconds", "Time that the phases of loads and commits took", "phase")
        self._behind = self._histogram(
            "catch_up_snapshots", "DuckDB's commits that a load found", buckets=_BUCKET_COUNTS
        )
        self._together = self._histogram("commits_together", "Commits in one transaction", buckets=_BUCKET_COUNTS)
        self._rows = self._counter("rows", "Rows that were posted and written")
        self._flushed = self._counter("rows_flushed", "Rows that went from Postgres to data files")
        self._plans = self._counter("scan_plans", "Scans that were planned")
        self._planned_files = self._counter("scan_files", "Files that plans considered, and that they matched", "what")
        self._batches = self._histogram(
            "row_batches_together", "Batches of rows in one transaction", buckets=_BUCKET_COUNTS
        )
        self._behind_feed = self._histogram("feed_seconds", "From a change until readers of the change feed get it")
        self._lineage = self._counter(
            "lineage_events", "Events of lineage, by what came of them", "transport", "outcome"
        )
        self._task_failures = self._counter("task_failures", "What could not be done in the background", "task")
        self._lineage_waiting = gauge(self._registry, "lineage_waiting", "Events not delivered yet", "transport")
        self._upkeep_tasks = gauge(
            self._registry, "upkeep_tasks", "Tasks of upkeep, by state", "warehouse", "state", mode="livemax"
        )
        self._upkeep_age = gauge(
            self._registry,
            "upkeep_oldest_seconds",
            "Age of the oldest task of upkeep that may be taken",
            "warehouse",
            mode="livemax",
        )
        self._upkeep_failures = gauge(
            self._registry,
            "upkeep_failures",
            "Attempts at tasks of upkeep in the last hour that failed, or ended with their worker",
            "warehouse",
            "kind",
            mode="livemax",
        )
        self._store_calls = self._histogram("store_call_seconds", "Calls of the object store", "call", "outcome")
        self._warehouses_open = gauge(self._registry, "warehouses_open", "Warehouses beside the first that are open")
        self._warehouse_requests = self._counter(
            "warehouse_requests", "Requests answered by warehouses beside the first", "warehouse", "status"
        )
        self._warehouse_seconds = self._histogram(
            "warehouse_request_seconds", "Time to answer for warehouses beside the first", "warehouse"
        )
        self._warehouse_refusals = self._counter(
            "warehouse_refusals", "Requests refused because a warehouse was sent more than it may have", "warehouse"
        )
        self._warehouse_names: set[str] = set()
        self._seconds_of = lru_cache(maxsize=4096)(self._seconds.labels)
        self._phase_of = lru_cache(self._phases.labels)
        if self._folder is not None:
            threading.Thread(target=self._refresh_forever, name="metrics", daemon=True).start()

    def request_started(self) -> None:
        self._requests.running += 1

    def undo_request_started(self) -> None:
        """Take `request_started` back."""
        self._requests.running -= 1

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        method = method if method in _KNOWN_METHODS else "other"
        self._requests.running -= 1
        self._requests.ended[method, route, status // 100] += 1
        self._seconds_of(method, route).observe(seconds)

    def warehouses_open(self, count: int) -> None:
        """Set how many warehouses beside the first are open."""
        self._warehouses_open.set(count)

    def warehouse_request(self, warehouse: str, status: int, seconds: float) -> None:
        """Count and time a request for a warehouse beside the first."""
        label = self._label_warehouse(warehouse)
        self._warehouse_requests.labels(label, f"{status // 100}xx").inc()
        self._warehouse_seconds.labels(label).observe(seconds)

    def warehouse_refused(self, warehouse: str) -> None:
        """Count a request that was refused by the warehouse's own limits."""
        self._warehouse_refusals.labels(self._label_warehouse(warehouse)).inc()

    def _label_warehouse(self, warehouse: str) -> str:
        """Return the name of a warehouse, or `other` once this worker has met as many as have series of their own."""
        if warehouse not in self._warehouse_names:
            if len(self._warehouse_names) >= MAX_WAREHOUSE_LABELS:
                return "other"
            self._warehouse_names.add(warehouse)
        return warehouse

    def login(self, outcome: Literal["login", "exchange", "refused", "throttled"]) -> None:
        self._logins.labels(outcome).inc()

    def request_shed(self) -> None:
        self._shed.inc()

    def report_received(self, report_type: str) -> None:
        self._reports.labels(report_type if report_type in _KNOWN_REPORTS else "other").inc()

    def conflict(self, kind: str) -> None:
        """Count a request that was answered with 409, by the kind of the error."""
        self._conflicts.labels(kind).inc()

    def job_ended(self, kind: str, result: str) -> None:
        self._jobs.labels(kind, result).inc()

    def phase(self, phase: Phase) -> "_Timer":
        return _Timer(self._phase_of(phase).observe)

    def took(self, phase: Phase, seconds: float) -> None:
        self._phase_of(phase).observe(seconds)

    def count_retry(self, reason: Retry) -> None:
        self._retries.labels(reason).inc()

    def caught_up(self, snapshots: int) -> None:
        self._behind.observe(snapshots)

    def written_together(self, commits: int) -> None:
        self._together.observe(commits)

    def rows_written(self, batches: int, rows: int) -> None:
        self._rows.inc(rows)
        self._batches.observe(batches)

    def rows_flushed(self, rows: int) -> None:
        self._flushed.inc(rows)

    def scan_planned(self, considered: int, matched: int) -> None:
        self._plans.inc()
        self._planned_files.labels("considered").inc(considered)
        self._planned_files.labels("matched").inc(matched)

    def feed_readers(self, readers: int) -> None:
        """Set how many readers wait for changes."""
        self._feed.readers = readers

    def feed_events(self, events: int) -> None:
        """Count changes that were sent to a reader."""
        self._feed.sent += events

    def feed_behind(self, seconds: float) -> None:
        """Record the seconds from a change until it reached this worker's readers."""
        self._behind_feed.observe(seconds)

    def lineage_sent(self, transport: str, outcome: Outcome, events: int) -> None:
        self._lineage.labels(transport, outcome).inc(events)

    def lineage_waiting(self, transport: str, events: int) -> None:
        self._lineage_waiting.labels(transport).set(events)

    def task_failed(self, task: Task) -> None:
        self._task_failures.labels(task).inc()

    def upkeep_queued(self, warehouse: str, tasks: Mapping[str, int], oldest_seconds: float) -> None:
        for state, count in tasks.items():
            self._upkeep_tasks.labels(warehouse, state).set(count)
        self._upkeep_age.labels(warehouse).set(oldest_seconds)

    def upkeep_failed(self, warehouse: str, attempts: Mapping[str, int]) -> None:
        for kind, count in attempts.items():
            self._upkeep_failures.labels(warehouse, kind).set(count)

    def store_call(self, call: str) -> "_StoreCall":
        return _StoreCall(self._store_calls, call)

    def render(self) -> bytes:
        """Render the text format for this process, or for all workers that share a folder."""
        self._look()
        if self._folder is None:
            return generate_latest(self._registry)
        delete_dead_gauges(self._folder)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)

    def _refresh_forever(self) -> None:
        """Write the state once a second, because other workers answer scrapes for this one."""
        while True:
            self._look()
            time.sleep(_REFRESH_SECONDS)

    def _look(self) -> None:
        with self._looks:
            for metrics in self._mirrored:
                metrics.look()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return counter(self._registry, name, text, *labels)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _BUCKET_SECONDS) -> Histogram:
        return Histogram(f"duckicelake_{name}", text, labels, registry=self._registry, buckets=buckets)


class _Timer:
    """Record how long its block takes."""

    __slots__ = ("_observe", "_started")

    def __init__(self, observe: Callable[[float], Any]) -> None:
        self._observe = observe

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self._observe(time.perf_counter() - self._started)


class _StoreCall:
    """Record how long a call takes, and whether the store answered; a missing file is an answer."""

    __slots__ = ("_call", "_histogram", "_started")

    def __init__(self, histogram: Histogram, call: str) -> None:
        self._histogram = histogram
        self._call = call

    def __enter__(self) -> Self:
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        outcome = "failed" if isinstance(error, UnavailableError) else "answered"
        self._histogram.labels(self._call, outcome).observe(time.perf_counter() - self._started)
