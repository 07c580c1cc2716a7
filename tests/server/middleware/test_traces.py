"""Traces: what a collector gets of requests, and when it gets nothing."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from duckicelake.catalog.context.meter import NO_METER
from duckicelake.catalog.context.services import Services
from duckicelake.cli.wiring.services import open_tracer
from duckicelake.errors import InvalidSettingsError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.server.app import create_app
from duckicelake.server.middleware.traces import TracedMeter
from tests.conftest import services_of
from tests.support.client import append, new_client
from tests.support.collector import Collector, values

TABLE = "/v1/namespaces/ns/tables/t"
ROUTE = "/v1/namespaces/{namespace}/tables/{table}"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Serve = Callable[[FastAPI], httpx.Client]


def depth_first(collector: Collector, span: Span) -> list[str]:
    """Names of all spans below a span."""
    children = collector.below(span)
    return [name for child in children for name in (child.name, *depth_first(collector, child))]


def test_commit_is_one_trace_from_request_to_statements_and_files(
    database_url: str, warehouse: Path, serve: Serve, collector: Collector
) -> None:
    with open_tracer(collector.uri) as spans:
        assert spans is not None
        database = open_lake_database(database_url, traced=spans.statement)
        services = services_of(database, warehouse)
        metadata = new_client(services).create()["metadata"]
        http = serve(create_app(services, tracer=spans))
        answer = http.post(TABLE, json=append(metadata, (1, "a")), headers={"traceparent": PARENT})
        assert answer.status_code == 200
        database.close()
    request = collector.named(f"POST {ROUTE}")
    assert {span.trace_id.hex() for span in collector.spans} == {PARENT.split("-")[1]}
    assert request.parent_span_id.hex() == PARENT.split("-")[2]
    assert request.kind == Span.SPAN_KIND_SERVER
    assert values(request.attributes) == {
        "http.request.method": "POST",
        "http.route": ROUTE,
        "http.response.status_code": 200,
        "url.path": TABLE,
        "duckicelake.request-id": answer.headers["x-request-id"],
        "user.id": "anonymous",
    }
    below = depth_first(collector, request)
    assert {"plan", "upload_read", "critical_section", "materialize"} <= set(below)
    assert depth_first(collector, collector.named("upload_read")).count("store read") == 2
    assert "store write_derived" in depth_first(collector, collector.named("materialize"))
    assert {"postgres write.insert_data_files", "postgres COMMIT"} <= set(below)
    assert collector.services == {"duckicelake"}


def test_span_of_a_request_that_the_server_fails_says_so(
    services: Services, serve: Serve, collector: Collector
) -> None:
    new_client(services).create()
    with open_tracer(collector.uri) as spans:
        http = serve(create_app(services, tracer=spans))
        assert http.get(f"{TABLE}-missing").status_code == 404
        services.database.close()
        assert http.post(TABLE, json={"requirements": [], "updates": []}).status_code == 503
    assert collector.named(f"GET {ROUTE}").status.code == Status.STATUS_CODE_UNSET
    assert collector.named(f"POST {ROUTE}").status.code == Status.STATUS_CODE_ERROR


def test_retries_and_waits_that_are_over_are_reported(collector: Collector) -> None:
    with open_tracer(collector.uri) as spans:
        assert spans is not None
        meter = TracedMeter(NO_METER, spans)
        meter.took("lock_wait", 9.0)
        with spans.request({}) as request:
            meter.took("lock_wait", 0.25)
            meter.count_retry("stale_base")
            request.end("GET /x", {}, failed=False)
    waited, request_span = collector.named("lock_wait"), collector.named("GET /x")
    assert collector.below(request_span) == [waited]
    assert waited.end_time_unix_nano - waited.start_time_unix_nano == 250_000_000
    assert [(event.name, values(event.attributes)) for event in request_span.events] == [
        ("retry", {"retry": "stale_base"})
    ]


def test_probes_and_work_outside_of_requests_leave_no_trace(
    database_url: str, warehouse: Path, serve: Serve, collector: Collector
) -> None:
    with open_tracer(collector.uri) as spans:
        assert spans is not None
        database = open_lake_database(database_url, traced=spans.statement)
        http = serve(create_app(services_of(database, warehouse), tracer=spans))
        assert http.get("/readyz").status_code == http.get("/metrics").status_code == 200
        database.close()
    assert collector.spans == []


@pytest.mark.parametrize(
    "environment",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_SDK_DISABLED": "true"}],
)
def test_no_one_who_wants_traces_means_none(environment: dict[str, str]) -> None:
    with open_tracer(None, environment) as spans:
        assert spans is None


def test_opentelemetry_s_own_variable_switches_traces_on(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.uri)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "lake-of-zoo")
    with open_tracer(None) as spans:
        assert spans is not None
        with spans.request({}):
            pass
    assert [span.name for span in collector.spans] == ["request"]
    assert collector.services == {"lake-of-zoo"}


def test_missing_libraries_are_named_with_the_extra_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "duckicelake.tracing.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    wanted = (
        r"DUCKICELAKE_OTLP_ENDPOINT asks for traces, but opentelemetry\S* isn't installed: install duckicelake\[otel\]"
    )
    with pytest.raises(InvalidSettingsError, match=wanted), open_tracer("http://localhost:4318"):
        pass


def test_nothing_of_opentelemetry_is_loaded_unless_it_is_asked_for() -> None:
    program = "import sys, duckicelake.cli.main; print('opentelemetry.sdk' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
