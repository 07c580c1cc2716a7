"""No text of a client's JSON holds a NUL character, which Postgres has none of: 400 that names it, on every route."""

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.support.client import Client, new_client
from tests.support.servers import running

JSON = "application/json"
VALUES = {"namespace": "ns", "table": "t", "job": str(uuid4())}
"""Of parameters of paths; others are 1."""
OTHERS = ("/v1/namespaces/{namespace}/tables/{table}/rows", "/management/v1/me/tokens")
"""Rows have values of columns, of which binary ones may have the character. A server without logins gives no tokens."""
BODIES = {
    b'{"parameters": {"k": ["x", "a\\u0000b"]}}': "parameters.k[1]",
    b'{"namespace": ["ns"], "name": "\\u0000"}': "name",
    b'{"updates": [{"a\\\\\\u0000": 1}]}': "a key of updates[0]",
}


@pytest.fixture
def http(services: Services) -> Iterator[httpx.Client]:
    client: Client = new_client(services)
    client.create("t")
    with running(create_app(services)) as uri, httpx.Client(base_url=uri, timeout=30) as connected:
        yield connected


def list_operations(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the methods and paths of the routes that take JSON."""
    return [
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if not path.startswith(OTHERS) and JSON in operation.get("requestBody", {}).get("content", {})
    ]


def test_every_route_refuses_a_nul_character_in_its_json(services: Services, http: httpx.Client) -> None:
    operations = list_operations(http.get("/openapi.json").json())
    assert len(operations) > 40
    wrong = []
    for method, path in operations:
        filled = re.sub(r"\{(\w+)\}", lambda name: VALUES.get(name[1], "1"), path)
        for body, place in BODIES.items():
            answer = http.request(method, filled, content=body, headers={"Content-Type": JSON})
            message = f"{place} holds a NUL character (\\u0000), which can't be stored"
            if answer.status_code != 400 or message not in answer.text.replace("\\\\", "\\"):
                wrong.append((method, path, answer.text))
    assert not wrong, "\n".join(map(str, wrong))


def test_an_escaped_backslash_before_the_digits_is_none(http: httpx.Client) -> None:
    body = b'{"id": "%s", "kind": "ingest", "engine": "x", "parameters": {"k": "\\\\u0000"}}' % VALUES["job"].encode()
    answer = http.post("/pipeline/v1/namespaces/ns/tables/t/jobs", content=body)
    assert (answer.status_code, answer.json()["parameters"]) == (200, {"k": "\\u0000"})
