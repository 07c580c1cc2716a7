"""Every place where a caller of the server gives a path or a URL, and what keeps the server from following it anywhere.

A new field or parameter that has the name of one, and no row here, fails.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import jwt
import pytest
from pydantic import SecretStr

from duckicelake.cli.wiring.services import build_warehouse_wiring
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.properties import WRITE_FOLDERS
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.server.api import create_routes
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.settings.model import Settings
from tests.conftest import new_lake, services_of
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running
from tests.support.view_requests import creation

Json = dict[str, Any]
NAMED = re.compile(
    r"(^|[-_.])(ur[il]s?|paths?|locations?|roots?|endpoints?|folders?|prefix|files?|href|hosts?|address|manifest-list)"
    r"($|[-_.])|properties|options|ANYTHING|(?<=[a-z])(Ur[il]|URL|Path|Location)($|[-_.])"
)
_ANYTHING = ".ANYTHING"
"""Stands for fields of a body that may hold any JSON."""
_JOBS = "/pipeline/v1/namespaces/{namespace}/tables/{table}/jobs"
TABLE, VIEW = "/v1/namespaces/{namespace}/tables", "/v1/namespaces/{namespace}/views"
UPDATES = {
    ".location": "within",
    ".snapshot.manifest-list": "within",
    ".statistics.statistics-path": "kept",
    ".partition-statistics.statistics-path": "kept",
    ".statistics.blob-metadata[].properties.*": "kept",
    ".encryption-key.properties.*": "kept",
}
GIVEN: Mapping[str, str] = {
    f"POST {TABLE} .location": "within",
    f"POST {TABLE} .properties.*": "within",
    "POST /v1/namespaces/{namespace}/materialized-views .properties.*": "within",
    "POST /v1/namespaces/{namespace}/query-results .properties.*": "within",
    f"POST {VIEW} .location": "within",
    f"POST {VIEW} .properties.*": "kept",
    f"POST {VIEW}/{{view}} .updates[].location": "within",
    "POST /v1/namespaces .properties.*": "kept",
    "POST /v1/namespaces/{namespace}/register .metadata-location": "within",
    "POST /v1/namespaces/{namespace}/register-view .metadata-location": "within",
    f"POST {TABLE}/{{table}}/sign .uri": "within",
    f"POST {TABLE}/{{table}}/sign .properties.*": "kept",
    **{f"POST {TABLE}/{{table}} .updates[]{field}": kind for field, kind in UPDATES.items()},
    **{f"POST /v1/transactions/commit .table-changes[].updates[]{field}": kind for field, kind in UPDATES.items()},
    "POST /management/v1/warehouses .location": "within",
    "POST /management/v1/warehouses .database-url": "guarded",
    "POST /management/v1/warehouses/{warehouse}/database .database-url": "elsewhere",  # test_other_databases
    "POST /management/v1/storage-profiles .root": "bucket",
    "POST /management/v1/storage-profiles .endpoint": "guarded",
    "POST /management/v1/storage-profiles .sts-endpoint": "guarded",
    "POST /management/v1/storage-profiles .public-endpoint": "kept",
    "POST /v1/oauth/logins .redirect_uri": "kept",  # the issuer compares it
    "POST /management/v1/issuers .url": "guarded",
    "POST /management/v1/issuers .jwks-url": "guarded",
    "POST /management/v1/issuers/{issuer} .url": "guarded",
    "POST /management/v1/issuers/{issuer} .jwks-url": "guarded",
    "POST /management/v1/warehouses/{warehouse}/options .options.*": "kept",
    "POST /api/v1/lineage .schemaURL": "kept",
    "POST /api/v1/lineage/batch [].schemaURL": "kept",
    "POST /pipeline/v1/namespaces/{namespace}/tables/{table}/orphans .files[].location": "compared",
    "GET /v1/namespaces/{namespace}/tables/{table}/credentials ?prefix": "compared",
    "GET /v1/doctor ?files": "kept",
    f"POST /management/v1/governance {_ANYTHING}": "guarded",  # URLs of issuers; the rest are names
    f"POST /api/v1/lineage {_ANYTHING}": "kept",
    f"POST /api/v1/lineage/batch {_ANYTHING}": "kept",
    f"POST /mcp/v1/calls {_ANYTHING}": "kept",  # of tools, which ask the routes here
    f"POST /v1/events {_ANYTHING}": "kept",
    f"POST {_JOBS} {_ANYTHING}": "kept",
    f"POST {_JOBS}/{{job}} {_ANYTHING}": "kept",
    f"POST {_JOBS}/{{job}}/end {_ANYTHING}": "kept",
}
"""What the server does with what it is given.

within: reads or writes there, only in the table's own or an allowed location. bucket: an S3 folder, reached by the keys
that come with it or, if the settings allow that, the server's. guarded: sends requests there, only to addresses that
are public or listed. elsewhere: guarded, and tried in another test.
compared: with what the server knows. kept: never followed; it is a name, a text for clients, or
no path at all.
"""
OUTSIDE = (
    "file:///etc/passwd",
    "/etc",
    "s3://other/x",
    "file:///nowhere/../etc",
    "http://{trap}/x",
    "https://{trap}/x",
    "{folder}/lake/data/ns/../../../outside/x",
    "{folder}/warehouses/../outside/x",
    "file://{folder}/lake/data/ns/../../../outside/x",
    "file://{folder}/lake/data/ns/link/x",
    "{folder}/warehouses/link/x",
    "{folder}/warehouses/link",
    "{folder}/warehouses/lake-link/x",
)
"""Places outside of the lake and the folder of warehouses. link leads to a folder outside, lake-link into the lake."""
PRIVATE = ("http://{trap}", "http://169.254.169.254/latest", "http://10.0.0.1", "http://[::1]:80", "http://2130706433")


def find_leaves(schema: Json, schemas: Json, path: str, seen: frozenset[str]) -> Iterator[str]:
    """Iterate over the fields of a body that hold texts, by their paths."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in seen:
            yield from find_leaves(schemas[name], schemas, path, seen | {name})
        return
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from find_leaves(part, schemas, path, seen)
    if "items" in schema:
        yield from find_leaves(schema["items"], schemas, f"{path}[]", seen)
    for name, part in schema.get("properties", {}).items():
        yield from find_leaves(part, schemas, f"{path}.{name}", seen)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from find_leaves(schema["additionalProperties"], schemas, f"{path}.*", seen)
    if schema.get("type") == "string":
        yield path
    elif schema.get("additionalProperties") is True and not schema.get("properties"):
        yield _ANYTHING


def find_given() -> Iterator[str]:
    """Iterate over all parameters and fields that are called as paths and URLs are."""
    described = create_routes().openapi()
    for path, item in described["paths"].items():
        for method, operation in item.items():
            if "{prefix}" in path or not isinstance(operation, dict):
                continue
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "query" and NAMED.search(parameter["name"]):
                    yield f"{method.upper()} {path} ?{parameter['name']}"
            for content in operation.get("requestBody", {}).get("content", {}).values():
                for leaf in find_leaves(content.get("schema", {}), described["components"]["schemas"], "", frozenset()):
                    if NAMED.search(leaf):
                        yield f"{method.upper()} {path} {leaf}"


def test_every_path_and_url_of_a_caller_has_its_row() -> None:
    assert set(find_given()) == set(GIVEN)


class Trap:
    """A server of the machine that requests of callers must not reach."""

    def __init__(self, stack: ExitStack) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_error(404)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        for name in ("HEAD", "PUT", "POST", "DELETE"):
            setattr(Handler, f"do_{name}", Handler.do_GET)
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        stack.callback(server.shutdown)
        self.address = f"127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def trap() -> Iterator[Trap]:
    with ExitStack() as stack:
        yield Trap(stack)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the server and the folder of its warehouses, with links that lead elsewhere."""
    folder: Path = tmp_path_factory.mktemp("site")
    for name in ("outside", "warehouses", "lake/data/ns"):
        (folder / name).mkdir(parents=True)
    (folder / "lake/data/ns/link").symlink_to(folder / "outside")
    (folder / "warehouses/link").symlink_to(folder / "outside")
    (folder / "warehouses/lake-link").symlink_to(folder / "lake")
    return folder


@pytest.fixture(scope="module")
def http(postgres: EmbeddedPostgres, folder: Path) -> Iterator[httpx.Client]:
    """A server that lists no address, asked by its administrator; it has a table and a view, ns.t and ns.v."""
    with new_lake(postgres, folder / "lake") as url, closing(open_lake_database(url, pool_size=4)) as database:
        services = services_of(database, folder / "lake")
        keys = SecretStr(f"new:{'n' * 32}")
        settings = Settings(
            database_url=url,
            warehouse=services.policy.warehouse,
            warehouse_roots=(f"{folder}/warehouses",),
            secret_keys=keys,
        )
        logins = Server().authentication(OAuthClient("root", SECRET, ("*",)), database=database)
        logins = replace(logins, guard=OutboundGuard.parse(()))
        app = create_app(services, authentication=logins, wiring=build_warehouse_wiring(settings))
        with running(app) as uri, httpx.Client(base_url=uri, timeout=30) as client:
            client.headers.update(bearing(token(client, "root")))
            assert client.post("/v1/namespaces", json={"namespace": ["ns"]}).status_code == 200
            made = client.post("/v1/namespaces/ns/tables", json={"name": "t", "schema": SCHEMA})
            assert made.status_code == 200, made.text
            assert client.post("/v1/namespaces/ns/views", json=creation("v")).status_code == 200
            good = {"name": "corp", "url": "https://192.0.43.8", "audience": "lake"}
            assert client.post("/management/v1/issuers", json=good).status_code == 200
            yield client
        app.warehouses.close()


PROFILE = {
    "name": "p",
    "root": "s3://bucket/lakes",
    "region": "us-east-1",
    "access-key-id": "a",
    "secret-access-key": "b",
}
ISSUER = {"name": "corp", "url": "https://192.0.43.8", "audience": "lake"}
SNAPSHOT = {
    "snapshot-id": 1,
    "sequence-number": 1,
    "timestamp-ms": 1_800_000_000_000,
    "summary": {"operation": "append"},
}
STATISTICS = {"snapshot-id": 1, "file-size-in-bytes": 4, "file-footer-size-in-bytes": 4, "blob-metadata": []}


def build_updates(field: str, text: str) -> list[Json]:
    """Build the updates of a commit that holds a path in a field."""
    match field:
        case ".location":
            return [{"action": "set-location", "location": text}]
        case ".snapshot.manifest-list":
            added = {"action": "add-snapshot", "snapshot": SNAPSHOT | {"manifest-list": text, "schema-id": 0}}
            ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}
            return [added, ref]
        case ".statistics.statistics-path":
            return [{"action": "set-statistics", "statistics": STATISTICS | {"statistics-path": text}}]
    found = {"snapshot-id": 1, "statistics-path": text, "file-size-in-bytes": 4}
    return [{"action": "set-partition-statistics", "partition-statistics": found}]


def build_requests(row: str, text: str) -> Iterator[tuple[str, Json]]:
    """Build the paths and bodies of requests that give a text where a row says."""
    route, _, field = row.partition(" .")
    path = route.removeprefix("POST ").replace("{namespace}", "ns").replace("{table}", "t").replace("{view}", "v")
    table = {"name": "x", "schema": SCHEMA}
    commit = field.startswith("updates[]")
    if commit and "{view}" in row:
        yield path, {"requirements": [], "updates": [{"action": "set-location", "location": text}]}
    elif commit:
        yield path, {"requirements": [], "updates": build_updates(field.removeprefix("updates[]"), text)}
    elif field.startswith("table-changes[].updates[]"):
        updates = build_updates(field.removeprefix("table-changes[].updates[]"), text)
        change = {"identifier": {"namespace": ["ns"], "name": "t"}, "requirements": [], "updates": updates}
        yield path, {"table-changes": [change]}
    elif row == f"POST {TABLE} .properties.*":
        yield from ((path, table | {"properties": {name: text}}) for name in WRITE_FOLDERS)
    elif row.startswith("POST /v1/namespaces/{namespace}/materialized-views"):
        view = {"name": "x", "query": "SELECT 1 AS id"}
        yield from ((path, view | {"properties": {name: text}}) for name in WRITE_FOLDERS)
    elif row.startswith("POST /v1/namespaces/{namespace}/query-results"):
        order = {"name": "x", "sql": "SELECT 1 AS id", "dry-run": True}
        yield from ((path, order | {"properties": {name: text}}) for name in WRITE_FOLDERS)
    elif field == "database-url":
        yield (
            path,
            {
                "name": "north",
                field: f"{text.replace('http://', 'postgresql://me:secret@').removesuffix('/latest')}/lake",
            },
        )
    elif field == "ANYTHING":
        for issuer in ({"url": text}, {"jwks-url": text}):
            yield path, {"document": {"issuers": [ISSUER | {"name": "other", "url": "https://192.0.43.9"} | issuer]}}
    elif row == "POST /v1/namespaces .properties.*":
        yield path, {"namespace": ["other"], "properties": {"location": text}}
    else:
        first = {"tables": table, "views": creation("x"), "register": {"name": "x"}, "register-view": {"name": "x"}}
        others = {"sign": {"region": "us-east-1", "method": "GET", "headers": {}}, "warehouses": {"name": "north"}}
        others |= {"storage-profiles": PROFILE, "issuers": ISSUER, "{issuer}": ISSUER}
        yield path.replace("{issuer}", "corp"), (first | others)[path.rpartition("/")[2]] | {field: text}


def list_rows(kind: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(row, text) for row, found in GIVEN.items() if found == kind for text in texts]


@pytest.mark.parametrize(("row", "text"), list_rows("within", OUTSIDE) + list_rows("bucket", OUTSIDE[:2]))
def test_place_outside_is_refused(http: httpx.Client, folder: Path, trap: Trap, row: str, text: str) -> None:
    for path, body in build_requests(row, text.format(trap=trap.address, folder=folder)):
        answer = http.post(path, json=body)
        assert 400 <= answer.status_code < 500, f"{path} {body}: {answer.status_code} {answer.text}"
    assert trap.asked == []
    assert [*(folder / "outside").iterdir()] == []


@pytest.mark.parametrize(("row", "text"), list_rows("guarded", PRIVATE))
def test_url_into_the_own_network_is_refused(http: httpx.Client, trap: Trap, row: str, text: str) -> None:
    for path, body in build_requests(row, text.format(trap=trap.address)):
        answer = http.post(path, json=body)
        assert answer.status_code == 400, answer.text
        assert re.search("public|address|Invalid URL|Invalid endpoint", answer.text), answer.text
    assert trap.asked == []


KEPT = [row for row in GIVEN if "statistics-path" in row or row.startswith("POST /v1/namespaces .")]


@pytest.mark.parametrize("row", KEPT)
def test_place_that_is_kept_is_not_followed(http: httpx.Client, trap: Trap, row: str) -> None:
    """Clients read statistics files, with keys for allowed locations alone, and lay out tables in a namespace."""
    for path, body in build_requests(row, f"http://{trap.address}/x"):
        answer = http.post(path, json=body)
        assert answer.status_code in (200, 204), answer.text
    assert http.get("/v1/namespaces/ns/tables/t").status_code == 200
    assert trap.asked == []


def test_urls_of_lineage_events_are_not_followed(http: httpx.Client, trap: Trap) -> None:
    url = f"http://{trap.address}/schema.json"
    place = {"namespace": url, "name": "x", "facets": {"schema": {"_producer": url, "_schemaURL": url, "fields": []}}}
    run = {"runId": "0190b9a0-0000-7000-8000-000000000001", "facets": {}}
    event = {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-28T12:00:00Z",
        "producer": url,
        "schemaURL": url,
        "run": run,
        "job": {"namespace": url, "name": "j"},
        "inputs": [place],
        "outputs": [],
    }
    answer = http.post("/api/v1/lineage", json=event)
    assert answer.status_code in (200, 201), answer.text
    assert trap.asked == []


@pytest.mark.parametrize("header", ["jku", "x5u"])
def test_urls_in_the_header_of_a_token_are_not_followed(http: httpx.Client, trap: Trap, header: str) -> None:
    url = f"http://{trap.address}/keys"
    text = jwt.encode({"iss": url, "sub": "ann"}, "k" * 32, "HS256", {header: url, "kid": "new"})
    assert http.get("/v1/config", headers=bearing(text)).status_code == 401
    assert trap.asked == []
