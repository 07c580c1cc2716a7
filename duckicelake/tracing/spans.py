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
"""With a collector that doesn't answer; a server that ends waits for it, too."""


class OtelTracer:
    """Makes spans, each a child of the one that is open where it is made, and sends them in the background.

    Outside of requests there are none: what pools do in the background would be traces of one statement each.
    The variables OTEL_* of the standard hold: endpoint, headers, sampler, limits, the service's name.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        """endpoint: URL of a collector; None: as OTEL_EXPORTER_OTLP_ENDPOINT says."""
        url = f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
        exporter = OTLPSpanExporter(url, timeout=None if _TIMEOUT_VARIABLE in os.environ else _EXPORT_TIMEOUT_SECONDS)
        self._provider = TracerProvider(resource=_build_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("duckicelake")

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator["OtelRequestSpan"]:
        """A span around a request, part of the trace that its header `traceparent` names, if any."""
        parent = _PROPAGATOR.extract(headers)
        with self._tracer.start_as_current_span("request", parent, SpanKind.SERVER) as span:
            yield OtelRequestSpan(span)

    def span(self, name: str, *, remote: bool = False) -> AbstractContextManager[object]:
        """A span around a block, marked as failed if it raises. remote: another server is asked."""
        if not _is_open():
            return nullcontext()
        return self._tracer.start_as_current_span(name, kind=SpanKind.CLIENT if remote else SpanKind.INTERNAL)

    def statement(self, name: str) -> AbstractContextManager[object]:
        """A span around a statement of SQL."""
        return self.span(f"postgres {name}", remote=True)

    def past(self, name: str, seconds: float) -> None:
        """A span of this length that ends now."""
        if not _is_open():
            return
        now = time.time_ns()
        self._tracer.start_span(name, start_time=now - round(seconds * 1e9)).end(now)

    def event(self, name: str, value: str | int) -> None:
        """Something that happened in the open span."""
        trace.get_current_span().add_event(name, {name: value})

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()


class OtelRequestSpan:
    """A request's, which is described when it is over."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, name: str, attributes: Mapping[str, str | int], *, failed: bool) -> None:
        """Say what it was. failed: by the server's fault."""
        self._span.update_name(name)
        self._span.set_attributes(attributes)
        if failed:
            self._span.set_status(Status(StatusCode.ERROR))


def _is_open() -> bool:
    return trace.get_current_span().get_span_context().is_valid


def _build_resource() -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if named else {SERVICE_NAME: _SERVICE_NAME})
