"""Search over names, columns and comments: what holds a text, of what the caller may see, page by page."""

import time
from dataclasses import replace
from typing import Any

import duckdb
import httpx
import pytest
from typer.testing import CliRunner

import duckicelake
from duckicelake.catalog import grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.cli.main import app
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import Serve


@pytest.fixture
def lake(ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Namespaces `zoo` and `attic`, with what holds "whale" in each place that is searched."""
    for statement in (
        "CREATE SCHEMA zoo",
        "CREATE SCHEMA attic",
        "CREATE TABLE zoo.whales (id BIGINT)",
        "CREATE TABLE zoo.sizes (id BIGINT, Whale_Kg DOUBLE, other INT)",
        "CREATE TABLE zoo.food (id BIGINT, grams DOUBLE)",
        "COMMENT ON TABLE zoo.food IS 'What whales eat'",
        "CREATE TABLE attic.units (id BIGINT, m DOUBLE)",
        "COMMENT ON COLUMN attic.units.m IS 'Metres of WHALE'",
        "CREATE VIEW attic.seen AS SELECT id FROM attic.units",
        "COMMENT ON VIEW attic.seen IS 'whale sightings'",
        "CREATE TABLE attic.plain (id BIGINT)",
        "CREATE TABLE attic.whale_gone (id BIGINT)",
        "DROP TABLE attic.whale_gone",
    ):
        ducklake.execute(statement)
    return ducklake


def find(http: httpx.Client, q: str, **options: Any) -> list[tuple[str, ...]]:
    answer = http.get("/v1/search", params={"q": q, **options})
    assert answer.status_code == 200, answer.text
    return [
        (one["kind"], ".".join([*one["namespace"], *filter(None, [one.get("name")])]), *one["matched"], *one["columns"])
        for one in answer.json()["objects"]
    ]


WHALES = [
    ("view", "attic.seen", "comment"),
    ("table", "attic.units", "column-comment", "m"),
    ("table", "zoo.food", "comment"),
    ("table", "zoo.sizes", "column", "Whale_Kg"),
    ("table", "zoo.whales", "name"),
]


def test_search_finds_names_columns_and_comments(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    http = serve(create_app(services))
    assert find(http, "whALe") == WHALES
    assert find(http, "whale", namespace="zoo") == WHALES[2:]
    assert find(http, "ZOO") == [
        ("namespace", "zoo", "name"),
        *((kind, name, "name") for kind, name, *_ in WHALES[2:]),
    ]
    assert find(http, "zoo.wh") == [("table", "zoo.whales", "name")]
    assert find(http, "%") == find(http, "whale_kg'") == []
    for wrong in ("", " ", "x" * 201):
        answer = http.get("/v1/search", params={"q": wrong})
        assert (answer.status_code, "1 to 200 characters" in answer.text) == (400, True)
    assert http.get("/v1/search").status_code == 400
    with duckicelake.connect(str(http.base_url)) as client:
        assert [one.name for one in client.search("whale")] == [name for _, name, *_ in WHALES]
    printed = CliRunner().invoke(app, ["search", "WHALE", "--namespace", "attic", "--uri", str(http.base_url)])
    assert printed.stdout.split() == [
        *("kind", "name", "columns", "comment", "view", "attic.seen", "whale", "sightings", "table", "attic.units", "m")
    ]


def test_pages_follow_one_another(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> None:
    http = serve(create_app(services))
    found: list[str] = []
    page = ""
    while True:
        answer = http.get("/v1/search", params={"q": "whale", "pageSize": 2, "pageToken": page}).json()
        assert len(answer["objects"]) <= 2
        found += [one["name"] for one in answer["objects"]]
        page = answer["next-page-token"]
        if page is None:
            break
    assert found == [name.partition(".")[2] for _, name, *_ in WHALES]


def test_search_shows_what_the_caller_may_see(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    server = Server()
    http = serve(server.app(services, server.authentication(OAuthClient("keeper", SECRET, ("ns:zoo:r",)))))
    http.headers.update(bearing(token(http, "keeper")))
    assert find(http, "whale") == WHALES[2:]
    assert find(http, "attic") == []


def test_search_follows_grants(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> None:
    governed = replace(services, rights=RightsCache.of_first(services.database))
    server = Server()
    http = serve(server.app(governed, server.authentication(OAuthClient("keeper", SECRET, ("grants",)))))
    with services.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES ('keeper', 'service')")
    objects = [parse_object(f"table:{name}") for name in ("attic.units", "zoo.food")]
    grants.change_grants(governed, [GrantChange("keeper", ("select",), one) for one in objects])
    grants.set_grants(governed, is_on=True)
    assert governed.rights is not None
    governed.rights.look()
    http.headers.update(bearing(token(http, "keeper")))
    assert find(http, "whale") == [WHALES[1], WHALES[2]]


def test_ten_thousand_tables_are_searched_at_once(services: Services, serve: Serve) -> None:
    """Measured: 0.1 s on a busy machine."""
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path, "
            "path_is_relative) SELECT 100000 + i, gen_random_uuid(), 0, 0, 't' || i, '', true "
            "FROM generate_series(1, 10000) i"
        )
        cursor.execute(
            "INSERT INTO ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name, column_type, "
            "nulls_allowed) SELECT c, 0, 100000 + i, c, 'column_' || c || '_' || i, 'int64', true "
            "FROM generate_series(1, 10000) i, generate_series(1, 10) c"
        )
    http = serve(create_app(services))
    find(http, "x")
    begun = time.perf_counter()
    assert find(http, "column_7_77") == [
        ("table", f"main.t{number}", "column", f"column_7_{number}")
        for number in sorted([77, *range(770, 780), *range(7700, 7800)], key=str)
    ]
    took = time.perf_counter() - begun
    print(f"{took:.3f} s")
    assert took < 3
