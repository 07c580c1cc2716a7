"""Queries that run are listed and cancelled by their ids, whichever worker of the server is asked."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import duckdb
import httpx
import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context.services import Services
from duckicelake.cli.main import app
from duckicelake.postgres.database import Database
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import Serve

pytestmark = pytest.mark.usefixtures("limits")

ROUTE, LIST = "/sql/v1/query", "/sql/v1/queries"
SLOW = "SELECT count(*) AS n FROM range(1000000) a, range(1000000) b"


class Background:
    """A query whose answer comes in another thread."""

    def __init__(self, http: httpx.Client, sql: str, **headers: str) -> None:
        self.query_id = str(uuid4())
        self.answers: list[httpx.Response] = []
        self._thread = threading.Thread(target=self._post, args=(http, sql, headers))
        self._thread.start()

    def _post(self, http: httpx.Client, sql: str, headers: dict[str, str]) -> None:
        body = {"sql": sql, "query-id": self.query_id}
        self.answers.append(http.post(ROUTE, json=body, headers=headers, timeout=60))

    def wait(self) -> httpx.Response:
        self._thread.join(60)
        return self.answers[0]


def wait_for(http: httpx.Client, query_id: str, is_right: Callable[[dict[str, Any]], bool], **headers: str) -> Any:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        answer = http.get(f"{LIST}/{query_id}", headers=headers)
        if answer.status_code == 200 and is_right(answer.json()):
            return answer.json()
        time.sleep(0.05)
    raise AssertionError(answer.text)


def test_query_is_listed_while_it_runs_and_after(http: httpx.Client) -> None:
    answer = http.post(ROUTE, json={"sql": "SELECT * FROM range(1234)"}, timeout=60)
    query_id = answer.headers["Duckicelake-Query"]
    found = wait_for(http, query_id, lambda query: query["state"] == "done")
    assert (found["rows"], found["progress"], found["statement"]) == (1234, 1.0, "SELECT * FROM range(1234)")
    assert found["seconds"] < 10
    refused = http.post(ROUTE, json={"sql": "SELECT nope", "query-id": (second := str(uuid4()))}, timeout=60)
    assert refused.status_code == 400
    wait_for(http, second, lambda query: query["state"] == "failed")
    assert [query["query-id"] for query in http.get(LIST).json()["queries"]] == [second, query_id]


def test_progress_of_a_long_query_is_reported(http: httpx.Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("CREATE TABLE main.long AS SELECT range AS id FROM range(3000000)")
    running = Background(http, "SELECT sum(length(repeat(md5(md5(id::VARCHAR)), 200))) AS n FROM main.long")
    found = wait_for(http, running.query_id, lambda query: (query.get("progress") or 0) > 0)
    assert (found["state"], found["progress"] <= 1) == ("running", True)
    http.delete(f"{LIST}/{running.query_id}")
    assert running.wait().status_code == 409


def test_query_is_cancelled_by_another_worker(
    services: Services, database: Database, http: httpx.Client, serve: Serve
) -> None:
    """The other worker has an event loop of its own, and shares nothing but Postgres."""
    other = serve(create_app(replace(services)))
    running = Background(http, SLOW)
    wait_for(other, running.query_id, lambda query: query["state"] == "running")
    began = time.monotonic()
    assert other.delete(f"{LIST}/{running.query_id}").status_code == 204
    answer = running.wait()
    assert (answer.status_code, answer.json()["error"]["message"]) == (409, f"Query {running.query_id} was cancelled")
    assert time.monotonic() - began < 5
    wait_for(other, running.query_id, lambda query: query["state"] == "cancelled")
    assert http.post(ROUTE, json={"sql": "SELECT 1 AS a"}, timeout=60).text == '{"a":1}\n'
    assert other.delete(f"{LIST}/{running.query_id}").status_code == 204


def test_answer_that_has_begun_is_cut_when_it_is_cancelled(http: httpx.Client) -> None:
    body = {"sql": "SELECT repeat('x', 1000) AS x, range FROM range(100000000)", "query-id": str(uuid4())}
    with http.stream("POST", ROUTE, json=body, timeout=60) as answer:
        pieces = answer.iter_bytes()
        next(pieces)
        assert http.delete(f"{LIST}/{body['query-id']}").status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):
            sum(map(len, pieces))


def test_principals_see_their_own_queries_alone(services: Services, serve: Serve) -> None:
    server = Server()
    scopes = {"ann": ("ns:a:r",), "bob": ("ns:a:r",), "root": ("*",)}
    clients = [OAuthClient(name, SECRET, given) for name, given in scopes.items()]
    http = serve(server.app(services, server.authentication(*clients)))
    headers = {client.client_id: bearing(token(http, client.client_id)) for client in clients}
    running = Background(http, SLOW, **headers["ann"])
    path = f"{LIST}/{running.query_id}"
    wait_for(http, running.query_id, lambda query: query["state"] == "running", **headers["ann"])
    assert http.get(path, headers=headers["bob"]).status_code == 404
    assert http.delete(path, headers=headers["bob"]).status_code == 404
    assert http.get(LIST, headers=headers["bob"]).json() == {"queries": []}
    assert [query["principal"] for query in http.get(LIST, headers=headers["root"]).json()["queries"]] == ["ann"]
    assert http.get(LIST).status_code == 401
    assert http.delete(path, headers=headers["root"]).status_code == 204
    assert running.wait().status_code == 409


def test_id_is_for_one_query(http: httpx.Client) -> None:
    body = {"sql": "SELECT 1 AS a", "query-id": str(uuid4())}
    assert [http.post(ROUTE, json=body, timeout=60).status_code for _ in range(2)] == [200, 409]
    assert http.post(ROUTE, json={**body, "query-id": "x"}).status_code == 400
    assert http.get(f"{LIST}/{uuid4()}").status_code == 404
    assert http.get(f"{LIST}/nope").status_code == 400


def test_query_of_a_process_that_died_is_lost(http: httpx.Client, database: Database) -> None:
    query_id = http.post(ROUTE, json={"sql": "SELECT 1"}, timeout=60).headers["Duckicelake-Query"]
    wait_for(http, query_id, lambda query: query["state"] == "done")
    with database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_query SET state = 'running', seen = now() - interval '1 minute'")
    assert http.get(f"{LIST}/{query_id}").json()["state"] == "lost"
    with database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_query SET seen = now() - interval '11 minutes'")
    http.post(ROUTE, json={"sql": "SELECT 1"}, timeout=60)
    assert http.get(f"{LIST}/{query_id}").status_code == 404


def test_commands_list_and_cancel(http: httpx.Client) -> None:
    uri = str(http.base_url).rstrip("/")
    running = Background(http, SLOW)
    wait_for(http, running.query_id, lambda query: query["state"] == "running")
    listed = CliRunner().invoke(app, ["queries", "--uri", uri, "--json"])
    assert [json.loads(line)["query-id"] for line in listed.stdout.splitlines()] == [running.query_id]
    printed = CliRunner().invoke(app, ["queries", "--uri", uri])
    assert running.query_id in printed.stdout
    cancelled = CliRunner().invoke(app, ["cancel", running.query_id, "--uri", uri])
    assert (cancelled.exit_code, cancelled.stderr) == (0, "")
    assert running.wait().status_code == 409
    missing = CliRunner().invoke(app, ["cancel", str(uuid4()), "--uri", uri])
    assert (missing.exit_code, "not found" in missing.stderr) == (2, True)
