"""The routes of registration and of transactions: statuses, types of errors, tags and bodies."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.server.routes.test_routes import error
from tests.support.client import SCHEMA
from tests.support.engine import append
from tests.support.foreign_catalog import Foreign, new_foreign

Serve = Callable[[FastAPI], httpx.Client]
Json = dict[str, Any]
REGISTER, TABLES = "/v1/namespaces/ns/register", "/v1/namespaces/ns/tables"


@pytest.fixture
def client(services: Services, serve: Serve) -> httpx.Client:
    client = serve(create_app(services))
    client.post("/v1/namespaces", json={"namespace": ["ns"]}).raise_for_status()
    return client


@pytest.fixture
def other(services: Services) -> Foreign:
    """A table of another catalog."""
    other = new_foreign(f"{services.policy.data_zone}/elsewhere")
    other.commit(append((1, "one"))(other.metadata()))
    return other


def body(location: str, name: str = "t", **others: Any) -> Json:
    return {"name": name, "metadata-location": location, **others}


def test_registered_table_is_answered_as_it_is_loaded(client: httpx.Client, other: Foreign) -> None:
    registered = client.post(REGISTER, json=body(other.location))
    assert registered.status_code == 200
    loaded = client.get(f"{TABLES}/t")
    assert registered.json() == loaded.json()
    assert registered.headers["etag"] == loaded.headers["etag"]
    assert client.get(f"{TABLES}/t", headers={"If-None-Match": registered.headers["etag"]}).status_code == 304


def test_registering_again_needs_overwrite_and_makes_another_tag(client: httpx.Client, other: Foreign) -> None:
    first = client.post(REGISTER, json=body(other.location))
    again = client.post(REGISTER, json=body(other.location, overwrite=False))
    assert error(again) == (409, "AlreadyExistsException")
    overwritten = client.post(REGISTER, json=body(other.location, overwrite=True))
    assert overwritten.status_code == 200
    assert overwritten.headers["etag"] != first.headers["etag"]
    loaded = client.get(f"{TABLES}/t", headers={"If-None-Match": first.headers["etag"]})
    assert loaded.status_code == 200


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metadata-location": "file:///etc/passwd"}, (400, "BadRequestException")),
        ({"metadata-location": None}, (400, "BadRequestException")),
        ({"name": ""}, (400, "BadRequestException")),
        ({"overwrite": "perhaps"}, (400, "BadRequestException")),
    ],
)
def test_registering_what_is_none_is_400(
    client: httpx.Client, other: Foreign, change: Json, expected: tuple[int, str]
) -> None:
    assert error(client.post(REGISTER, json=body(other.location) | change)) == expected


def test_registering_what_is_missing_is_404(client: httpx.Client, other: Foreign) -> None:
    assert error(client.post(REGISTER, json=body(f"{other.location}.gone"))) == (404, "NotFoundException")
    nowhere = client.post("/v1/namespaces/gone/register", json=body(other.location))
    assert error(nowhere) == (404, "NoSuchNamespaceException")


def test_unregistered_table_is_answered_with_both_fields_and_gone(client: httpx.Client, other: Foreign) -> None:
    registered = client.post(REGISTER, json=body(other.location)).json()
    given = client.post(f"{TABLES}/t/unregister")
    assert given.status_code == 200
    assert given.json() == {key: registered[key] for key in ("metadata-location", "metadata")}
    commit = client.post(f"{TABLES}/t", json={"requirements": [], "updates": []})
    for gone in (commit, client.get(f"{TABLES}/t"), client.post(f"{TABLES}/t/unregister")):
        assert error(gone) == (404, "NoSuchTableException")
    assert client.get(TABLES).json()["identifiers"] == []


def change(name: str | None, *updates: Json, **requirement: Any) -> Json:
    identifier = {} if name is None else {"identifier": {"namespace": ["ns"], "name": name}}
    return {**identifier, "requirements": [requirement] if requirement else [], "updates": list(updates)}


def properties(**values: str) -> Json:
    return {"action": "set-properties", "updates": values}


def transact(client: httpx.Client, *changes: Json) -> httpx.Response:
    return client.post("/v1/transactions/commit", json={"table-changes": changes})


def test_transaction_is_answered_without_a_body(client: httpx.Client) -> None:
    for name in ("a", "b"):
        client.post(TABLES, json={"name": name, "schema": SCHEMA}).raise_for_status()
    done = transact(client, change("a", properties(x="1")), change("b", properties(y="2")))
    assert (done.status_code, done.content) == (204, b"")
    found = [client.get(f"{TABLES}/{name}").json()["metadata"]["properties"] for name in ("a", "b")]
    assert (found[0]["x"], found[1]["y"]) == ("1", "2")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([change("a", properties(x="1")), change(None, properties(x="1"))], (400, "BadRequestException")),
        ([change("a", properties(x="1")), change("a", properties(y="1"))], (400, "BadRequestException")),
        ([change("a", properties(x="1")), change("gone", properties(x="1"))], (404, "NoSuchTableException")),
        ([change("a", properties(x="1")), change("b", properties(x="1"), type="assert-create")],
         (409, "CommitFailedException")),
        ([change("a", properties(x="1")), change("b", properties(x="1"), type="assert-table-uuid", uuid="1-2")],
         (409, "CommitFailedException")),
        ([change("a", properties(x="1")), change("b", {"action": "fly"})], (400, "BadRequestException")),
        ([change("a", properties(x="1")), change("b", type="assert-view-uuid", uuid="1")],
         (400, "BadRequestException")),
    ],
)  # fmt: skip
def test_transaction_that_fails_says_why_and_changes_nothing(
    client: httpx.Client, changes: list[Json], expected: tuple[int, str]
) -> None:
    for name in ("a", "b"):
        client.post(TABLES, json={"name": name, "schema": SCHEMA}).raise_for_status()
    assert error(transact(client, *changes)) == expected
    assert "x" not in json.loads(client.get(f"{TABLES}/a").content)["metadata"]["properties"]
