"""Spans of requests and of what they do, for a tracer if there is one."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.catalog.context.meter import Meter, Outcome, Phase, Retry, Task
from duckicelake.server.http.scope import EXEMPT_PATHS, PRINCIPAL_KEY, find_request_id

_MIN_SERVER_ERROR_STATUS: Final = 500


class RequestSpan(Protocol):
    """The span of one request."""

    def end(self, name: str, attributes: Mapping[str, str | int], *, failed: bool) -> None:
        """End the span with its name and attributes, which the route determines."""


class Tracer(Protocol):
    """Makes spans; each becomes a child of the one that is open where it is made."""

    def request(self, headers: Mapping[str, str]) -> AbstractContextManager[RequestSpan]:
        """Make a span around a request, part of the trace that its headers name."""

    def span(self, name: str, *, remote: bool = False) -> AbstractContextManager[object]:
        """Make a span around a block; remote: another server is asked."""

    def past(self, name: str, seconds: float) -> None:
        """Make a span of this length that ends now."""

    def event(self, name: str, value: str | int) -> None:
        """Note something in the open span."""


class TraceMiddleware:
    """Make a span around every request, except those of EXEMPT_PATHS.

    It belongs inside `RequestLogMiddleware`, which gives the request its id.
    """

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in EXEMPT_PATHS:
            await self._app(scope, receive, send)
            return
        status = _MIN_SERVER_ERROR_STATUS

        async def forward(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with self._tracer.request(_select_trace_headers(scope)) as span:
            try:
                await self._app(scope, receive, forward)
            finally:
                name, attributes = _describe_request(scope, status)
                span.end(name, attributes, failed=status >= _MIN_SERVER_ERROR_STATUS)


@dataclass(frozen=True, slots=True)
class TracedMeter:
    """A meter whose phases and calls become spans, too."""

    meter: Meter
    tracer: Tracer

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        with self.tracer.span(phase), self.meter.phase(phase):
            yield

    def took(self, phase: Phase, seconds: float) -> None:
        self.tracer.past(phase, seconds)
        self.meter.took(phase, seconds)

    def count_retry(self, reason: Retry) -> None:
        self.tracer.event("retry", reason)
        self.meter.count_retry(reason)

    def caught_up(self, snapshots: int) -> None:
        self.tracer.event("caught_up", snapshots)
        self.meter.caught_up(snapshots)

    def written_together(self, commits: int) -> None:
        self.tracer.event("written_together", commits)
        self.meter.written_together(commits)

    def rows_written(self, batches: int, rows: int) -> None:
        self.tracer.event("rows_written", rows)
        self.meter.rows_written(batches, rows)

    def rows_flushed(self, rows: int) -> None:
        self.tracer.event("rows_flushed", rows)
        self.meter.rows_flushed(rows)

    def scan_planned(self, considered: int, matched: int) -> None:
        self.tracer.event("scan_planned", considered)
        self.meter.scan_planned(considered, matched)

    def lineage_sent(self, transport: str, outcome: Outcome, events: int) -> None:
        self.meter.lineage_sent(transport, outcome, events)

    def lineage_waiting(self, transport: str, events: int) -> None:
        self.meter.lineage_waiting(transport, events)

    def task_failed(self, task: Task) -> None:
        self.meter.task_failed(task)

    def upkeep_queued(self, warehouse: str, tasks: Mapping[str, int], oldest_seconds: float) -> None:
        self.meter.upkeep_queued(warehouse, tasks, oldest_seconds)

    def upkeep_failed(self, warehouse: str, attempts: Mapping[str, int]) -> None:
        self.meter.upkeep_failed(warehouse, attempts)

    @contextmanager
    def store_call(self, call: str) -> Iterator[None]:
        with self.tracer.span(f"store {call}", remote=True), self.meter.store_call(call):
            yield


def _select_trace_headers(scope: Scope) -> dict[str, str]:
    """Select the headers that name the request's trace."""
    wanted = (b"traceparent", b"tracestate")
    return {str(name, "ascii"): str(value, "latin-1") for name, value in scope["headers"] if name in wanted}


def _describe_request(scope: Scope, status: int) -> tuple[str, dict[str, str | int]]:
    """Name and attributes, by OpenTelemetry's conventions for HTTP."""
    route = getattr(scope.get("route"), "path", "")
    attributes: dict[str, str | int] = {
        "http.request.method": scope["method"],
        "http.response.status_code": status,
        "url.path": scope["path"],
        "duckicelake.request-id": find_request_id(scope),
    }
    if route:
        attributes["http.route"] = route
    if PRINCIPAL_KEY in scope:
        attributes["user.id"] = scope[PRINCIPAL_KEY]
    return f"{scope['method']} {route}".strip(), attributes
