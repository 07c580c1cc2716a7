"""Reads over HTTP: whose they are, what clients' own loads and reports become, and what doesn't belong together."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from fastapi import FastAPI
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.lineage.events.inference import ApplicationWrite, name_application
from duckicelake.lineage.events.reads import ReadLog, find_inputs
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient as Login
from duckicelake.server.http.scope import find_session
from tests.support.client import Client, new_client
from tests.support.logins import SECRET, Server

Serve = Callable[[FastAPI], httpx.Client]
TABLES = "/v1/namespaces/ns/tables"
SPARK = {"engine-name": "spark", "app-id": "local-1"}
SCAN = {
    "report-type": "scan-report",
    "snapshot-id": 17,
    "projected-field-ids": [1, 2147483646],
    "projected-field-names": ["id", "_file"],
    "filter": {"type": "eq", "term": "name", "value": "(hash-74dd884d)"},
    "metadata": SPARK,
}


@pytest.fixture
def noting(services: Services) -> Services:
    """The services of a server that notes reads; the tests write them down."""
    log = ReadLog()
    log.is_on = True
    return replace(services, reads=log)


@pytest.fixture
def tables(noting: Services) -> Client:
    """Tables a, b and c, with a row each."""
    client = new_client(noting)
    for name in "abc":
        client.create(name)
        client.append((1, name), name=name)
    return client


@pytest.fixture
def http(noting: Services, tables: Client, serve: Serve) -> httpx.Client:
    return serve(create_app(noting))


def seen(services: Services, *columns: str) -> list[Any]:
    """What was noted so far, in order: these columns, or the one."""
    services.reads.write(services.database)
    with services.database.statement() as cursor:
        rows = cursor.execute(f"SELECT {', '.join(columns)} FROM duckicelake_read ORDER BY at, id").fetchall()
    return [row if len(columns) > 1 else row[0] for row in rows]


def inferred(services: Services, output: str) -> list[tuple[str, float]]:
    """Inputs of the newest change of a table, as the trail tells whose that was."""
    services.reads.write(services.database)
    with services.database.transaction() as cursor:
        found = cursor.execute(
            """SELECT a.at, a.principal, a.client ->> 'session', t.table_id, s.summary
               FROM duckicelake_audit a
               JOIN ducklake_table t ON t.table_name = split_part(a.resource, '.', 2) AND t.end_snapshot IS NULL
               JOIN duckicelake_snapshot s ON s.table_id = t.table_id AND s.ducklake_id = a.snapshot_id
               WHERE a.resource = %s ORDER BY a.id DESC LIMIT 1""",
            [f"ns.{output}"],
        ).fetchone()
        assert found is not None
        at, principal, session, table_id, summary = found
        write = ApplicationWrite(
            at, principal, session, name_application(summary), frozenset({table_id}), summary["operation"]
        )
        return [(each.table, each.confidence) for each in find_inputs(cursor, write, services.reads.window)]


def test_loads_are_noted_whichever_way_they_are_answered(noting: Services, http: httpx.Client) -> None:
    for _ in range(20):
        http.get(f"{TABLES}/a").raise_for_status()
    etag = http.get(f"{TABLES}/b?snapshots=all").headers["etag"]
    assert http.get(f"{TABLES}/c?snapshots=refs", headers={"If-None-Match": etag}).status_code == 200
    http.head(f"{TABLES}/b").raise_for_status()
    assert http.get(f"{TABLES}/gone").status_code == 404
    assert seen(noting, "table_name", "kind") == [("ns.a", "load"), ("ns.b", "lookup"), ("ns.c", "lookup")]


def test_a_load_that_comes_again_is_noted_once_in_a_while(
    noting: Services, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_often() -> None:
        for _ in range(20):
            http.get(f"{TABLES}/a").raise_for_status()

    load_often()
    assert len(seen(noting, "id")) == 1
    passed = time.perf_counter() + 3
    monkeypatch.setattr(time, "perf_counter", lambda: passed)
    load_often()
    assert len(seen(noting, "id")) == 2


def test_connections_of_strangers_are_sessions_of_their_own(noting: Services, http: httpx.Client) -> None:
    for _ in range(3):
        with httpx.Client(base_url=http.base_url, headers={"user-agent": "same"}) as another:
            for _ in range(5):
                another.get(f"{TABLES}/a").raise_for_status()
    sessions = seen(noting, "session")
    assert len(sessions) == len(set(sessions)) == 3
    assert len({session.partition(":")[0] for session in sessions}) == 1


def test_a_report_becomes_a_row_without_the_values_of_its_filter(noting: Services, http: httpx.Client) -> None:
    http.post(f"{TABLES}/a/metrics", json=SCAN).raise_for_status()
    http.post(f"{TABLES}/b/metrics", json={"report-type": "commit-report", "metadata": SPARK}).raise_for_status()
    assert seen(noting, "kind", "table_name", "application", "snapshot_id", "projected", "filtered") == [
        ("scan", "ns.a", "spark local-1", 17, ["id"], ["name"]),
        ("report", "ns.b", "spark local-1", None, [], []),
    ]


WRONG: dict[str, dict[str, Any]] = {
    "snapshot id": {"snapshot-id": "17"},
    "too large a snapshot id": {"snapshot-id": 2**63},
    "names": {"projected-field-names": [1]},
    "names with NUL": {"projected-field-names": ["a\0"]},
    "metadata": {"metadata": "spark"},
    "no type": {"report-type": None},
}


def nested(depth: int) -> str:
    not_null = '{"type":"not","child":' * depth + '"x"' + "}" * depth
    return f'{{"report-type":"scan-report","filter":{not_null}}}'


def test_a_bad_report_is_400_and_nothing_is_noted(noting: Services, http: httpx.Client) -> None:
    bodies = {what: json.dumps(SCAN | members) for what, members in WRONG.items()}
    bodies |= {f"a filter of depth {depth}": nested(depth) for depth in (150, 5_000, 100_000)}
    for what, body in bodies.items():
        answer = http.post(f"{TABLES}/a/metrics", content=body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException"), what
    assert http.post(f"{TABLES}/gone/metrics", json=SCAN).status_code == 404
    assert seen(noting, "id") == []


def test_what_was_noted_and_dropped_is_counted(noting: Services, http: httpx.Client) -> None:
    http.get(f"{TABLES}/a").raise_for_status()
    assert len(seen(noting, "id")) == 1
    assert 'duckicelake_reads_total{outcome="recorded"} 1.0' in http.get("/metrics").text


def copy(catalog: RestCatalog, source: str, target: str) -> None:
    rows = catalog.load_table(f"ns.{source}").scan().to_arrow()
    catalog.load_table(f"ns.{target}").append(rows)


def test_pyiceberg_without_login_copies_on_one_connection(noting: Services, http: httpx.Client) -> None:
    catalog, other = (RestCatalog("lake", uri=str(http.base_url)) for _ in range(2))
    other.load_table("ns.b")
    copy(catalog, "a", "c")
    assert inferred(noting, "c") == [("ns.a", 0.3)]


def test_what_is_read_again_at_once_after_a_write_counts_for_the_next(noting: Services, http: httpx.Client) -> None:
    catalog = RestCatalog("lake", uri=str(http.base_url))
    copy(catalog, "a", "c")
    assert inferred(noting, "c") == [("ns.a", 0.3)]
    for _ in range(2):
        copy(catalog, "a", "b")
        assert inferred(noting, "b") == [("ns.a", 0.3)]


def test_pyiceberg_with_logins_copies_in_its_session(noting: Services, tables: Client, serve: Serve) -> None:
    server = Server()
    http = serve(
        server.app(noting, server.authentication(Login("etl", SECRET, ("*",)), Login("other", SECRET, ("*",))))
    )
    uri = str(http.base_url).rstrip("/")

    def logged_in(name: str) -> RestCatalog:
        return RestCatalog(
            "lake", uri=uri, credential=f"{name}:{SECRET}", **{"oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
        )

    first, another, stranger = logged_in("etl"), logged_in("etl"), logged_in("other")
    stranger.load_table("ns.b")
    copy(first, "a", "c")
    assert inferred(noting, "c") == [("ns.a", 0.4)]
    another.load_table("ns.b").append(pa.table({"id": pa.array([5], pa.int64()), "name": ["x"]}))
    assert inferred(noting, "b") == [], "another program of the same principal has read nothing"
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as duck:
        for extension in ("avro", "httpfs", "iceberg"):
            import_extension(extension)
            duck.execute(f"LOAD {extension}")
        duck.execute(f"""ATTACH '' AS lake (TYPE iceberg, ENDPOINT '{uri}', CLIENT_ID 'etl', CLIENT_SECRET '{SECRET}',
                         OAUTH2_SERVER_URI '{uri}/v1/oauth/tokens')""")
        duck.execute("INSERT INTO lake.ns.a SELECT id, name FROM lake.ns.b WHERE id > 0")
    assert inferred(noting, "a") == [("ns.b", 0.4)], "DuckDB commits on another connection, with the same token"


def scope(**headers: str) -> dict[str, Any]:
    said = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"headers": said, "client": ("10.0.0.1", 4711)}


SOMEONE = Principal("etl", ())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"authorization": "Bearer a"}, {"authorization": "Bearer b"}),
        ({"user_agent": "a"}, {"user_agent": "b"}),
        ({"x_application_id": "a"}, {}),
        ({"authorization": "ab", "user_agent": "c"}, {"authorization": "a", "user_agent": "bc"}),
    ],
)
def test_programs_are_distinguished_by(one: dict[str, str], other: dict[str, str]) -> None:
    assert find_session(scope(**one), SOMEONE) != find_session(scope(**other), SOMEONE)
    assert find_session(scope(**one), SOMEONE) == find_session(scope(**one), SOMEONE)


@pytest.mark.parametrize("header", ["forwarded", "via", "x_forwarded_for"])
def test_strangers_behind_a_proxy_share_no_session(header: str) -> None:
    session = find_session(scope(**{header: "10.0.0.1"}), ANY_PRINCIPAL)
    assert session.on(4711) != session.on(4711)
    assert session.on(4711).partition(":")[0] == session.program
    assert find_session(scope(), ANY_PRINCIPAL).on(0) != find_session(scope(), ANY_PRINCIPAL).on(0), (
        "nobody says which connection"
    )


def test_a_name_in_a_header_makes_a_session_of_several_connections() -> None:
    assert len({find_session(scope(x_application_id="nightly"), ANY_PRINCIPAL).on(port) for port in (1, 2)}) == 1


def test_a_stranger_has_no_token_whatever_they_send() -> None:
    sessions = {find_session(scope(authorization=text), ANY_PRINCIPAL).on(1) for text in ("Bearer a", "Bearer b")}
    assert len(sessions) == 1
