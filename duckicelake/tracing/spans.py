"""Spans of OpenTelemetry, sent by OTLP over HTTP."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_SERVICE_NAME: Final = "duckicelake"
_TIMEOUT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_TIMEOUT"
_EXPORT_TIMEOUT_SECONDS: Final = 4
"""Time for one export. A server that stops waits for it, too."""


class OtelTracer:
    """Make spans and send them in the background. A span is a child of the open one.

    No spans are made outside of requests: background work of pools would give traces of one statement each.
    OpenTelemetry's OTEL_* variables set endpoint, headers, sampler, limits and the service's name.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        """Start the exporter. endpoint: URL of a collector; None takes OTEL_EXPORTER_OTLP_ENDPOINT."""
        url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
        exporter = OTLPSpanExporter(url, timeout=None if _TIMEOUT_VARIABLE in os.environ else _EXPORT_TIMEOUT_SECONDS)
        self._provider = TracerProvider(resource=_build_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("duckicelake")

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator["OtelRequestSpan"]:
        """Open a span around a request, in the trace that its header `traceparent` names, if any."""
        parent = _PROPAGATOR.extract(headers)
        with self._tracer.start_as_current_span("request", parent, SpanKind.SERVER) as span:
            yield OtelRequestSpan(span)

    def span(self, name: str, *, remote: bool = False) -> AbstractContextManager[object]:
        """Open a span around a block; an exception marks it as failed. remote: the block asks another server."""
        if not _is_open():
            return nullcontext()
        return self._tracer.start_as_current_span(name, kind=SpanKind.CLIENT if remote else SpanKind.INTERNAL)

    def statement(self, name: str) -> AbstractContextManager[object]:
        """Open a span around an SQL statement."""
        return self.span(f"postgres {name}", remote=True)

    def past(self, name: str, seconds: float) -> None:
        """Record a span of this length that ends now."""
        if not _is_open():
            return
        now = time.time_ns()
        self._tracer.start_span(name, start_time=now - round(seconds * 1e9)).end(now)

    def event(self, name: str, value: str | int) -> None:
        """Add an event to the open span."""
        trace.get_current_span().add_event(name, {name: value})

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


class OtelRequestSpan:
    """The span of a request; `end` names it."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, name: str, attributes: Mapping[str, str | int], *, failed: bool) -> None:
        """Set the name and attributes. failed: by the server's fault."""
        self._span.update_name(name)
        self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(Status(StatusCode.ERROR))


def _is_open() -> bool:
    return trace.get_current_span().get_span_context().is_valid


def _build_resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {SERVICE_NAME: _SERVICE_NAME})
