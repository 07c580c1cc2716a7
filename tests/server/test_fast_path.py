"""Loads from memory: the route's own answers, whoever asks, and never old ones, whichever worker changed what."""

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog import namespaces, tables
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table import load
from duckicelake.iceberg.rest import CommitTableRequest, RenameTableRequest
from duckicelake.lake.side_tables.freshness import FreshnessLine
from duckicelake.lake.state import Freshness, FreshnessQuery
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient as Login
from duckicelake.server.telemetry.logs import make_logger
from tests.conftest import Attach
from tests.support.client import NS, SCHEMA, Client, Json, append, new_client, set_ref
from tests.support.logins import SECRET, Server, bearing, token

Serve = Callable[[FastAPI], httpx.Client]
TABLE = "/v1/namespaces/ns/tables/t"
WISH = {"X-Iceberg-Access-Delegation": "vended-credentials"}


@dataclass
class Route:
    """How often the route itself was asked, not only memory."""

    asked: int = 0


@pytest.fixture
def route(services: Services, monkeypatch: pytest.MonkeyPatch) -> Route:
    seen, load = Route(), tables.load_table

    def counted(asked: Services, *arguments: Any) -> Any:
        seen.asked += asked.cache is services.cache
        return load(asked, *arguments)

    monkeypatch.setattr(tables, "load_table", counted)
    return seen


@pytest.fixture
def writer(services: Services) -> Client:
    """What another worker does: with a cache of its own."""
    client = new_client(replace(services, cache=TableCache()))
    client.create("t", properties={"gone": "soon"})
    client.append((1, "a"))
    return client


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def http(services: Services, serve: Serve, log: io.StringIO) -> httpx.Client:
    return serve(create_app(services, log=make_logger(log, "json")))


def warmed(http: httpx.Client, route: Route, url: str = TABLE, **headers: str) -> httpx.Response:
    """The answer once it comes from memory: the connection for that is made beside the first loads."""
    patience = time.monotonic() + 30
    while time.monotonic() < patience:
        before = route.asked
        answer = http.get(url, headers=headers)
        assert answer.status_code == 200, answer.text
        if route.asked == before:
            return answer
    raise AssertionError("no load was answered from memory")


def said(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """All of an answer but when it was given, and its number."""
    headers = {name: value for name, value in answer.headers.items() if name not in {"date", "x-request-id"}}
    return answer.status_code, answer.content, headers


@pytest.mark.parametrize("headers", [{}, WISH], ids=["plain", "with a wish"])
@pytest.mark.parametrize(
    "query",
    [
        "",
        "?snapshots=all",
        "?snapshots=refs",
        "?snapshots=brief",
        "?snapshots=all&referenced-by=ns%251Fv",
        "?referenced-by=x",
    ],
)
def test_memory_answers_as_the_route_does(
    http: httpx.Client, writer: Client, route: Route, query: str, headers: dict[str, str]
) -> None:
    by_route = http.get(TABLE + query, headers=headers)
    assert route.asked == 1
    from_memory = warmed(http, route, TABLE + query, **headers)
    assert said(from_memory) == said(by_route)
    asked, etag = route.asked, by_route.headers["etag"]
    for known, status in ((etag, 304), (f'W/{etag}, "x"', 304), ('"x"', 200), ("*", 200 if headers else 304)):
        answer = http.get(TABLE + query, headers={**headers, "If-None-Match": known})
        assert (answer.status_code, answer.content) == (status, by_route.content if status == 200 else b"")
        assert answer.headers["etag"] == etag
    assert route.asked == asked


def test_namespace_of_levels_and_odd_names_is_found_in_memory(
    http: httpx.Client, writer: Client, route: Route, services: Services
) -> None:
    namespaces.create_namespace(services, ("a b",), {})
    namespaces.create_namespace(services, ("a b", "ü/x"), {})
    listed = "/v1/namespaces/a%20b%1F%C3%BC%2Fx/tables"
    made = http.post(listed, json={"name": "t.1 %", "schema": SCHEMA}).raise_for_status()
    assert warmed(http, route, f"{listed}/t.1%20%25").json()["metadata"] == made.json()["metadata"]


@pytest.mark.parametrize("query", ["?snapshots=some", "?snapshots=all&snapshots=refs", "?what=else"])
def test_what_memory_does_not_understand_is_the_routes(
    http: httpx.Client, writer: Client, route: Route, query: str
) -> None:
    warmed(http, route)
    before, status = route.asked, http.get(TABLE + query).status_code
    assert status == 400 if query == "?snapshots=some" else route.asked == before + 1


Change = Callable[[Client, Attach], object]


def commit(client: Client, *updates: Json) -> None:
    request = CommitTableRequest.model_validate({"requirements": [], "updates": updates})
    tables.commit_table(client.services, NS, "t", request)


def rename(client: Client, name: str) -> None:
    source, destination = ({"namespace": list(NS), "name": each} for each in ("t", name))
    request = {"source": source, "destination": destination}
    tables.rename_table(client.services, RenameTableRequest.model_validate(request))


def replaced(client: Client, attach: Attach) -> None:
    tables.drop_table(client.services, NS, "t", purge=False)
    client.create("t")


def moved_back(client: Client, attach: Attach) -> None:
    rename(client, "other")
    client.create("t")


def dropped_namespace(client: Client, attach: Attach) -> None:
    attach().execute("DROP SCHEMA ns CASCADE")


NEW_SPEC: Json = {"spec-id": 1, "fields": [{"source-id": 1, "transform": "identity", "name": "id", "field-id": 1000}]}
SCHEMA_2: Json = {
    "type": "struct",
    "schema-id": 1,
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}
CHANGES: dict[str, Change] = {
    "append": lambda client, _: client.append((2, "b")),
    "properties": lambda client, _: commit(client, {"action": "set-properties", "updates": {"a": "b"}}),
    "removed property": lambda client, _: commit(client, {"action": "remove-properties", "removals": ["gone"]}),
    "tag": lambda client, _: commit(client, set_ref("v1", client.metadata()["current-snapshot-id"], "tag")),
    "spec": lambda client, _: commit(
        client, {"action": "add-spec", "spec": NEW_SPEC}, {"action": "set-default-spec", "spec-id": -1}
    ),
    "schema": lambda client, _: commit(
        client, {"action": "add-schema", "schema": SCHEMA_2}, {"action": "set-current-schema", "schema-id": -1}
    ),
    "sort order": lambda client, _: commit(
        client,
        {
            "action": "add-sort-order",
            "sort-order": {
                "order-id": 1,
                "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
            },
        },
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ),
    "table of the same name": replaced,
    "rename, and a table of the old name": moved_back,
    "DuckDB's insert": lambda _, attach: attach().execute("INSERT INTO ns.t VALUES (2, 'b')"),
    "DuckDB's delete": lambda _, attach: attach().execute("DELETE FROM ns.t WHERE id = 1"),
    "DuckDB's update": lambda _, attach: attach().execute("UPDATE ns.t SET name = 'z'"),
    "DuckDB's new column": lambda _, attach: attach().execute("ALTER TABLE ns.t ADD COLUMN more INTEGER"),
    "DuckDB's lost column": lambda _, attach: attach().execute("ALTER TABLE ns.t DROP COLUMN name"),
    "DuckDB's partitioning": lambda _, attach: attach().execute("ALTER TABLE ns.t SET PARTITIONED BY (id)"),
}
LEAVING: dict[str, Change] = {
    "drop": lambda client, _: tables.drop_table(client.services, NS, "t", purge=False),
    "purge": lambda client, _: tables.drop_table(client.services, NS, "t", purge=True),
    "unregister": lambda client, _: tables.unregister_table(client.services, NS, "t"),
    "rename": lambda client, _: rename(client, "u"),
    "DuckDB's drop": lambda _, attach: attach().execute("DROP TABLE ns.t"),
    "DuckDB's rename": lambda _, attach: attach().execute("ALTER TABLE ns.t RENAME TO u"),
    "DuckDB's drop of the schema": dropped_namespace,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_another_worker_or_duckdb_changed_is_seen_at_once_and_then_from_memory(
    http: httpx.Client, writer: Client, route: Route, attach: Attach, change: Change
) -> None:
    before = {query: warmed(http, route, TABLE + query) for query in ("", "?snapshots=refs", "?snapshots=brief")}
    change(writer, attach)
    for query, known in before.items():
        conditional = http.get(TABLE + query, headers={"If-None-Match": known.headers["etag"]})
        assert conditional.status_code == 200
        assert conditional.headers["etag"] != known.headers["etag"]
        assert conditional.json()["metadata"] != known.json()["metadata"]
        assert said(warmed(http, route, TABLE + query)) == said(conditional)
    assert (
        http.get(TABLE).json()["metadata"] == json.loads(tables.load_table(writer.services, NS, "t").body)["metadata"]
    )


@pytest.mark.parametrize("change", LEAVING.values(), ids=LEAVING)
def test_table_that_has_left_is_gone_at_once(
    http: httpx.Client, writer: Client, route: Route, attach: Attach, change: Change
) -> None:
    etag = warmed(http, route).headers["etag"]
    change(writer, attach)
    for headers in ({}, {"If-None-Match": etag}):
        answer = http.get(TABLE, headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NoSuchTableException")


def test_renamed_table_is_found_by_its_new_name(http: httpx.Client, writer: Client, route: Route) -> None:
    before = warmed(http, route)
    rename(writer, "u")
    after = warmed(http, route, f"{TABLE[:-1]}u")
    assert (after.content, after.headers["etag"]) == (before.content, before.headers["etag"])


def test_expiry_by_duckdb_is_seen_at_once(
    http: httpx.Client, writer: Client, route: Route, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for number in range(3):
        ducklake.execute(f"INSERT INTO ns.t VALUES ({number + 10}, 'x')")
    before = warmed(http, route).json()["metadata"]["snapshots"]
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)")
    assert len(http.get(TABLE).json()["metadata"]["snapshots"]) < len(before)


def test_history_that_was_held_long_enough_leaves_without_any_write_of_ducklakes(
    http: httpx.Client, writer: Client, route: Route, services: Services
) -> None:
    writer.append((2, "b"))
    before = warmed(http, route).json()["metadata"]["snapshots"]
    with services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE duckicelake_snapshot SET held_until = now() - interval '1 s' WHERE snapshot_id = %s",
            [before[0]["snapshot-id"]],
        )
    assert http.get(TABLE).json()["metadata"]["snapshots"] == before[1:]


def test_what_happens_to_other_tables_leaves_memory_as_it_is(
    http: httpx.Client, writer: Client, route: Route, ducklake: duckdb.DuckDBPyConnection
) -> None:
    writer.create("other")
    before = warmed(http, route)
    asked = route.asked
    for number in range(3):
        writer.append((number, "x"), name="other")
        assert said(http.get(TABLE)) == said(before)
        ducklake.execute(f"INSERT INTO ns.other VALUES ({number}, 'y')")
        ducklake.execute(f'CREATE TABLE ns."u:x,{number}" AS SELECT 1 AS id')
        assert said(http.get(TABLE)) == said(before)
    tables.drop_table(writer.services, NS, "other", purge=False)
    assert said(http.get(TABLE)) == said(before)
    assert route.asked == asked


def test_line_of_the_log_and_the_metrics_show_of_loads_from_memory(
    http: httpx.Client, writer: Client, route: Route, log: io.StringIO
) -> None:
    warmed(http, route)
    log.seek(0)
    log.truncate()
    answer = http.get(TABLE, headers={"X-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    counted = http.get("/metrics").text
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    report = next(line for line in lines if line["event"] == "request" and line["request_id"] == "mine")
    template = "/v1/namespaces/{namespace}/tables/{table}"
    assert (report["route"], report["path"], report["status"], report["method"]) == (template, TABLE, 200, "GET")
    assert report["principal"] == "anonymous"
    number = route.asked + 1  # those of `warmed` that the route answered, the one from memory, and this one
    assert f'duckicelake_requests_total{{method="GET",route="{template}",status="2xx"}} {number + 1}.0' in counted


def test_hits_are_counted(http: httpx.Client, writer: Client, route: Route, services: Services) -> None:
    warmed(http, route)
    before = services.cache.statistics()
    http.get(TABLE)
    after = services.cache.statistics()
    assert (after["hits"], after["misses"]) == (before["hits"] + 1, before["misses"])


@pytest.fixture
def secured(services: Services, serve: Serve) -> tuple[httpx.Client, Server]:
    server = Server()
    logins = (Login("root", SECRET, ("*",)), Login("reader", SECRET, ("ns:ns:r",)), Login("other", SECRET, ("ns:x:*",)))
    return serve(server.app(services, server.authentication(*logins))), server


def test_memory_answers_no_one_whom_the_route_would_not(
    secured: tuple[httpx.Client, Server], writer: Client, route: Route
) -> None:
    http, server = secured
    root, reader, other = (bearing(token(http, name)) for name in ("root", "reader", "other"))
    assert said(warmed(http, route, **root)) == said(warmed(http, route, **reader))
    asked = route.asked
    etag = http.get(TABLE, headers=root).headers["etag"]
    for known in ({}, {"If-None-Match": etag}):
        refused = [http.get(TABLE, headers={**who, **known}).status_code for who in (other, {}, bearing("nonsense"))]
        assert refused == [403, 401, 401]
    server.clock.now += 3601
    assert http.get(TABLE, headers=root).status_code == 401
    assert route.asked == asked


def test_token_whose_client_lost_a_scope_is_not_remembered_past_a_minute(
    secured: tuple[httpx.Client, Server], writer: Client, route: Route
) -> None:
    http, server = secured
    reader = bearing(token(http, "reader"))
    warmed(http, route, **reader)
    asked = route.asked
    server.clock.now += 61
    assert http.get(TABLE, headers=reader).status_code == 200
    assert route.asked == asked + 1, "the token is read again, by the guard of the route"
    assert http.get(TABLE, headers=reader).status_code == 200
    assert route.asked == asked + 1


def test_append_between_two_workers_is_never_missed_by_the_next_load(
    http: httpx.Client, writer: Client, route: Route, serve: Serve
) -> None:
    other = serve(create_app(writer.services))
    for number in range(10):
        metadata = warmed(http, route).json()["metadata"]
        made = other.post(TABLE, json=append(metadata, (number + 100, "x"))).json()["metadata"]
        assert http.get(TABLE).json()["metadata"]["current-snapshot-id"] == made["current-snapshot-id"]


@dataclass
class FreshnessQuestions:
    """How often Postgres was asked whether a table is current, by the event loop and by threads."""

    asked: int = 0


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> FreshnessQuestions:
    counter, ask_line, ask_cursor = FreshnessQuestions(), FreshnessLine.freshness, load.lake_freshness

    async def count_on_line(line: FreshnessLine, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        counter.asked += 1
        return await ask_line(line, asked)

    def count_on_cursor(cursor: Any, asked: Sequence[FreshnessQuery]) -> list[Freshness | None]:
        counter.asked += 1
        return ask_cursor(cursor, asked)

    monkeypatch.setattr(FreshnessLine, "freshness", count_on_line)
    monkeypatch.setattr(load, "lake_freshness", count_on_cursor)
    return counter


@pytest.mark.parametrize("is_replayed", [True, False], ids=["same bytes", "other bytes"])
def test_load_of_changed_table_asks_postgres_for_freshness_once(
    http: httpx.Client, writer: Client, route: Route, questions: FreshnessQuestions, is_replayed: bool
) -> None:
    warmed(http, route)
    http.get(TABLE).raise_for_status()
    loads, snapshot = route.asked, writer.append((2, "b"))["metadata"]["current-snapshot-id"]
    questions.asked = 0
    answer = http.get(TABLE, headers={} if is_replayed else {"X-Other": "bytes"})
    assert (route.asked, questions.asked) == (loads + 1, 1)
    assert answer.json()["metadata"]["current-snapshot-id"] == snapshot
    assert http.get(TABLE).content == answer.content
    assert (route.asked, questions.asked) == (loads + 1, 2), "the new version is answered from memory"
