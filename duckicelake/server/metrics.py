"""Prometheus metrics of one app. Labels are few and bounded: route templates, known methods, status classes."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_LATEST
SHARED_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Set before import in each of several workers, it makes any worker answer for all of them."""

_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"})
_REPORTS = frozenset({"scan-report", "commit-report"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

disable_created_metrics()  # type: ignore[no-untyped-call]

Statistics = Callable[[], Mapping[str, int]]


class Metrics:
    """Counts what the app does; `pool` and `cache` tell the state of the connection pool and the table cache."""

    def __init__(self, pool: Statistics, cache: Statistics = dict) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Cache(cache))
        self._registry.register(_Pool(pool))
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "duckicelake_requests", "Requests answered", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "duckicelake_request_seconds",
            "Time to answer",
            ("method", "route"),
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._running = Gauge(
            "duckicelake_requests_running",
            "Requests being answered now",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._logins = Counter(
            "duckicelake_logins", "Requests for tokens, by what became of them", ("outcome",), registry=self._registry
        )
        self._shed = Counter(
            "duckicelake_requests_shed",
            "Requests refused because too many were under way",
            registry=self._registry,
        )
        self._reports = Counter(
            "duckicelake_metrics_reports",
            "Metrics reports received from engines",
            ("report",),
            registry=self._registry,
        )

    def request_started(self) -> None:
        self._running.inc()

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in _METHODS else "other"
        self._running.dec()
        self._requests.labels(known, route, f"{status // 100}xx").inc()
        self._seconds.labels(known, route).observe(seconds)

    def login(self, outcome: Literal["login", "exchange", "refused", "throttled"]) -> None:
        self._logins.labels(outcome).inc()

    def request_shed(self) -> None:
        self._shed.inc()

    def report_received(self, report_type: str) -> None:
        self._reports.labels(report_type if report_type in _REPORTS else "other").inc()

    def render(self) -> bytes:
        """The text format: of this process, or of all workers that share a folder (then without pool and process)."""
        if SHARED_FOLDER_VARIABLE not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)


class _Pool(Collector):
    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[GaugeMetricFamily]:
        statistics = self._statistics()
        size, idle = statistics.get("pool_size", 0), statistics.get("pool_available", 0)
        family = GaugeMetricFamily("duckicelake_pool_connections", "Postgres connections", labels=("state",))
        family.add_metric(("used",), size - idle)
        family.add_metric(("idle",), idle)
        yield family
        yield GaugeMetricFamily(
            "duckicelake_pool_waiting", "Requests waiting for a connection", statistics.get("requests_waiting", 0)
        )
        yield GaugeMetricFamily("duckicelake_pool_max", "Most connections", statistics.get("pool_max", 0))


class _Cache(Collector):
    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        statistics = self._statistics()
        loads = CounterMetricFamily("duckicelake_table_loads", "Tables served, by cache outcome", labels=("cache",))
        loads.add_metric(("hit",), statistics.get("hits", 0))
        loads.add_metric(("miss",), statistics.get("misses", 0))
        yield loads
        yield GaugeMetricFamily("duckicelake_cached_tables", "Tables in memory", statistics.get("tables", 0))
