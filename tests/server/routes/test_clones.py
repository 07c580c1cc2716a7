"""Restoring, cloning and expiring over HTTP."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.authz.table_folders import find_table_folders
from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError
from duckicelake.server.app import create_app
from tests.support.client import NS, Client, new_client, pyiceberg_rows

TABLE = "/v1/namespaces/ns/tables/t"
KEY = "01999999-0000-7000-8000-000000000003"
Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def client(services: Services) -> Client:
    client = new_client(services)
    client.create()
    client.append((1, "a"))
    client.append((2, "b"))
    return client


def test_restore_once_and_show_the_same_again(client: Client, serve: Serve) -> None:
    http = serve(create_app(client.services))
    first, second = (each["snapshot-id"] for each in client.metadata()["snapshots"])
    dry = http.post(f"{TABLE}/restore", json={"to": str(first), "dry-run": True}).json()
    assert (dry["rows-removed"], dry["files-removed"], dry.get("snapshot-id")) == (1, 1, None)
    body: dict[str, Any] = {"to": str(first)}
    answers = [http.post(f"{TABLE}/restore", json=body, headers={"Idempotency-Key": KEY}).json() for _ in range(2)]
    assert answers[0] == answers[1]
    answer = client.load()
    assert answers[0]["snapshot-id"] == answer["metadata"]["current-snapshot-id"]
    assert (answers[0]["restored-from"], answers[0]["restored-over"]) == (first, second)
    assert pyiceberg_rows(answer) == [(1, "a")]
    misspelt = http.post(f"{TABLE}/restore", json={"to": str(second), "dryrun": True})
    assert misspelt.json()["error"]["message"] == "Invalid request: dryrun: there is no such field"
    unknown = http.post(f"{TABLE}/restore", json={"to": "12345"})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "NotFoundException")


def test_clone_and_expire(client: Client, serve: Serve) -> None:
    http = serve(create_app(client.services))
    http.post("/v1/namespaces", json={"namespace": ["other"]})
    request = {"name": "c", "source": {"namespace": ["ns"], "name": "t"}, "with-history": True}
    made = http.post("/v1/namespaces/other/clone", json=request, headers={"Idempotency-Key": KEY}).json()
    assert pyiceberg_rows(made) == [(1, "a"), (2, "b")]
    again = http.post("/v1/namespaces/other/clone", json=request, headers={"Idempotency-Key": KEY}).json()
    assert again["metadata"]["table-uuid"] == made["metadata"]["table-uuid"]
    assert http.post("/v1/namespaces/other/clone", json=request).status_code == 409
    (report,) = http.get("/pipeline/v1/tables", params={"namespace": "ns", "table": "t"}).json()["tables"]
    assert report["policies"]["gc.enabled"] == "shared"
    expired = http.post(f"{TABLE}/expire", json={"older-than-ms": 1 << 60}).json()
    assert expired == {"snapshots": 1, "left": 1, "refs": [], "keeps-files": False}
    refused = http.post(
        TABLE, json={"requirements": [], "updates": [{"action": "remove-properties", "removals": ["gc.enabled"]}]}
    )
    assert refused.status_code == 400
    assert "shares files" in refused.json()["error"]["message"]


def test_keys_cover_shared_files_and_only_who_may_read_a_table_may_clone_it(client: Client) -> None:
    services = client.services
    made = clone_table(services, NS, "c", CloneRequest((NS, "t")))
    folders = find_table_folders(services, made)
    location = client.metadata()["location"]
    assert any(folder.startswith(location) for folder in folders.elsewhere)
    assert not any(folder.startswith(location) for folder in folders.written)
    restricted = replace(services, caller=Caller(Principal("somebody", build_grants(["ns:other:rw"]))))
    with pytest.raises(ForbiddenError, match="in namespace ns"):
        clone_table(restricted, ("other",), "c", CloneRequest((NS, "t")))
