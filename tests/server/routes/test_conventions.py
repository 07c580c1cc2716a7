"""What holds for every route that is advertised, and for every answer about a table."""

from collections.abc import Callable

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from duckicelake.server.routes.catalog import ENDPOINTS
from tests.support.client import SCHEMA, Json, new_client, set_properties

TABLE = "/v1/namespaces/ns/tables/t"
TABLES = "/v1/namespaces/ns/tables"
PATHS = sorted({endpoint.split()[1] for endpoint in ENDPOINTS})
WITHOUT_BODY = [endpoint for endpoint in ENDPOINTS if not endpoint.startswith("POST") and "{namespace}" in endpoint]
TAKING_BODIES = [
    template
    for method, template in map(str.split, ENDPOINTS)
    if method == "POST" and not template.endswith("/unregister")
]
DELEGATIONS = [
    "vended-credentials",
    "vended-credentials,remote-signing",
    "remote-signing , nonsense",
    ",",
    "",
    "gr\xf6\xdfe",
]


@pytest.fixture
def http(services: Services, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    new_client(services).create()
    return serve(create_app(services))


def path_of(template: str) -> str:
    path = template.replace("/{prefix}", "").replace("{namespace}", "nope")
    return path.replace("{table}", "nope").replace("{view}", "nope")


def envelope(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "code"}
    assert body["error"]["code"] == answer.status_code
    return answer.status_code, body["error"]["type"]


@pytest.mark.parametrize("template", PATHS)
def test_method_that_is_not_served_is_405_naming_those_that_are(http: httpx.Client, template: str) -> None:
    served = sorted(endpoint.split()[0] for endpoint in ENDPOINTS if endpoint.split()[1] == template)
    answer = http.patch(path_of(template), json={})
    assert envelope(answer) == (405, "MethodNotAllowedException")
    assert answer.headers["allow"] == ", ".join(served)


@pytest.mark.parametrize("endpoint", WITHOUT_BODY)
def test_what_is_not_there_is_404(http: httpx.Client, endpoint: str) -> None:
    method, template = endpoint.split()
    answer = http.request(method, path_of(template))
    assert answer.status_code == 404
    if method == "HEAD":
        assert answer.content == b""
    else:
        assert envelope(answer)[1].startswith("NoSuch")


@pytest.mark.parametrize("template", TAKING_BODIES)
def test_body_that_is_no_json_is_400(http: httpx.Client, template: str) -> None:
    path = template.replace("/{prefix}", "").replace("{namespace}", "ns").replace("{table}", "t").replace("{view}", "v")
    assert envelope(http.post(path, content=b"{")) == (400, "BadRequestException")


@pytest.mark.parametrize("wish", DELEGATIONS)
def test_wish_for_delegated_access_does_no_harm(http: httpx.Client, wish: str) -> None:
    headers = {"X-Iceberg-Access-Delegation": wish.encode("latin-1")}
    created = http.post(TABLES, json={"name": "u", "schema": SCHEMA}, headers=headers)
    staged = http.post(TABLES, json={"name": "v", "schema": SCHEMA, "stage-create": True}, headers=headers)
    loaded, committed = http.get(TABLE, headers=headers), http.post(TABLE, json=set_properties(k="v"), headers=headers)
    assert [answer.status_code for answer in (created, staged, loaded, committed)] == [200, 200, 200, 200]


def test_answers_about_a_table_show_caches_that_they_are_private(http: httpx.Client) -> None:
    created = http.post(TABLES, json={"name": "u", "schema": SCHEMA})
    committed, loaded = http.post(TABLE, json=set_properties(k="v")), http.get(TABLE)
    unchanged = http.get(TABLE, headers={"If-None-Match": committed.headers["etag"]})
    assert unchanged.status_code == 304
    for answer in (created, committed, loaded, unchanged):
        assert answer.headers["cache-control"] == "private"
        assert answer.headers["vary"] == "Authorization, X-Iceberg-Access-Delegation"
        assert answer.headers["etag"]


def identified(namespace: list[str], name: str) -> Json:
    return {"identifier": {"namespace": namespace, "name": name}, **set_properties(k="v")}


@pytest.mark.parametrize("identifier", [(["ns"], "u"), (["other"], "t"), (["ns", "t"], "t")])
def test_commit_whose_identifier_is_not_that_of_the_path_is_400(
    http: httpx.Client, identifier: tuple[list[str], str]
) -> None:
    answer = http.post(TABLE, json=identified(*identifier))
    assert envelope(answer) == (400, "BadRequestException")
    assert "ns.t" in answer.json()["error"]["message"]
    assert "k" not in http.get(TABLE).json()["metadata"]["properties"]


def test_commit_whose_identifier_is_that_of_the_path_is_made(http: httpx.Client) -> None:
    assert http.post(TABLE, json=identified(["ns"], "t")).status_code == 200


@pytest.mark.parametrize(
    "report",
    [
        {
            "report-type": "scan-report",
            "table-name": "ns.t",
            "snapshot-id": 1,
            "filter": {"type": "eq", "term": "id", "value": 1},
            "schema-id": 0,
            "projected-field-ids": [1],
            "projected-field-names": ["id"],
            "metrics": {"total-planning-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 5}},
        },
        {"report-type": "scan-report", "table-name": "ns.t", "filter": True, "metrics": {}},
        {
            "report-type": "commit-report",
            "table-name": "ns.t",
            "snapshot-id": 1,
            "sequence-number": 1,
            "operation": "append",
            "metrics": {"attempts": {"unit": "count", "value": 1}},
            "metadata": {"engine-name": "spark"},
        },
        {"report-type": "report-of-the-future"},
    ],
)
def test_report_in_either_form_of_its_filter_is_taken(http: httpx.Client, report: Json) -> None:
    answer = http.post(f"{TABLE}/metrics", json=report)
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("report", [{}, {"report-type": None}, {"report-type": 5}, []])
def test_report_that_is_none_is_400(http: httpx.Client, report: object) -> None:
    assert envelope(http.post(f"{TABLE}/metrics", json=report)) == (400, "BadRequestException")
