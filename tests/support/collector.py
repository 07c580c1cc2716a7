"""A real collector of traces: what arrives by OTLP over HTTP, decoded."""

import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(slots=True)
class Collector:
    """`services` are the names of those who sent something."""

    uri: str = ""
    spans: list[Span] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def take(self, data: bytes) -> None:
        for sent in ExportTraceServiceRequest.FromString(data).resource_spans:
            self.services.add(values(sent.resource.attributes)["service.name"])
            self.spans += (span for scope in sent.scope_spans for span in scope.spans)

    def named(self, name: str) -> Span:
        """The one span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def below(self, span: Span) -> list[Span]:
        """A span's children, in the order in which they began."""
        children = (each for each in self.spans if each.parent_span_id == span.span_id)
        return sorted(children, key=lambda each: each.start_time_unix_nano)


def values(attributes: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            data = self.rfile.read(int(self.headers["Content-Length"]))
            found.take(gzip.decompress(data) if self.headers["Content-Encoding"] == "gzip" else data)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found.uri = f"http://127.0.0.1:{server.server_address[1]}"
        yield found
        server.shutdown()
        thread.join()
