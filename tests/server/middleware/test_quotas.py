"""What one caller may make the server keep is bounded in bytes and rows, whatever the requests are."""

import io
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema import MAX_FIELDS, Schema, check_schema
from duckicelake.server.app import Edge, create_app
from duckicelake.server.middleware import audit
from duckicelake.server.middleware.quotas import Quota, Rates
from duckicelake.server.telemetry.logs import make_logger

Serve = Callable[[Any], httpx.Client]
TABLES = "/v1/namespaces/main/tables"


def event(number: int, padding: int) -> dict[str, Any]:
    return {
        "eventTime": "2026-01-01T00:00:00Z",
        "eventType": "COMPLETE",
        "producer": "https://example.com",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": f"018f6d6e-0000-7000-8000-{number:012}"},
        "job": {"namespace": "tools", "name": "x" * padding},
    }


def test_lineage_is_limited_by_its_bytes(services: Services, serve: Serve) -> None:
    http = serve(create_app(services, edge=Edge(rows=Rates(lineage_bytes=3000))))
    answers = [http.post("/api/v1/lineage", json=event(number, 900)) for number in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 60
    assert "DUCKICELAKE_LINEAGE_BYTES_PER_HOUR" in answers[-1].json()["error"]["message"]
    assert http.post("/api/v1/lineage/batch", json=[event(9, 10)]).status_code == 429
    assert http.get("/api/v1/jobs").json()["totalCount"] == 1


def test_hour_of_a_quota_may_come_at_once_and_comes_back_by_and_by() -> None:
    now = 10_000.0
    quota = Quota(1.0, lambda: now, burst=3600.0)
    quota.spend("a", 3600)
    assert quota.wait("a") == 0
    quota.spend("a", 100)
    assert quota.wait("a") == 100
    now += 100
    assert quota.wait("a") == 0


def test_refusals_do_not_fill_the_audit_table(
    services: Services, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_MAX_REFUSALS", 5)
    log = io.StringIO()
    http = serve(create_app(services, log=make_logger(log, "json")))
    began = time.monotonic()
    for number in range(30):
        assert http.delete(f"{TABLES}/gone{number}").status_code == 404
    with services.database.reading() as cursor:
        (kept,) = cursor.execute("SELECT count(*) FROM duckicelake_audit").fetchone() or (0,)
    assert 5 <= kept <= 7 + time.monotonic() - began
    assert log.getvalue().count('"event":"audit"') == 30, "the log has all of them"
    assert http.post("/v1/namespaces", json={"namespace": ["made"]}).status_code == 200
    with services.database.reading() as cursor:
        made = cursor.execute("SELECT count(*) FROM duckicelake_audit WHERE result = 'ok'").fetchone()
    assert made == (1,), "what succeeds is always there"


def schema_of(count: int, nested: int = 0) -> dict[str, Any]:
    plain = [{"id": number, "name": f"c{number}", "type": "int", "required": False} for number in range(1, count + 1)]
    inner = [
        {"id": count + 1 + number, "name": f"n{number}", "type": "int", "required": False} for number in range(nested)
    ]
    if nested:
        plain[0] |= {"type": {"type": "struct", "fields": inner}}
    return {"type": "struct", "fields": plain}


@pytest.mark.parametrize(
    ("count", "nested", "is_refused"),
    [(MAX_FIELDS, 0, False), (MAX_FIELDS + 1, 0, True), (5, MAX_FIELDS, True)],
)
def test_schemas_have_a_largest_size(count: int, nested: int, is_refused: bool) -> None:
    schema = Schema.model_validate({"schema-id": 0, **schema_of(count, nested)})
    if is_refused:
        with pytest.raises(InvalidRequestError, match="more than 10000 fields"):
            check_schema(schema, 2)
    else:
        check_schema(schema, 2)


def test_table_of_very_many_columns_is_refused_soon(services: Services, serve: Serve) -> None:
    http = serve(create_app(services))
    answer = http.post(TABLES, json={"name": "wide", "schema": schema_of(10 * MAX_FIELDS)})
    assert answer.status_code == 400
    assert "more than 10000 fields" in answer.json()["error"]["message"]
