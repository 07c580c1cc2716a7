"""A lake as people look at it, served by a server that runs queries and asks no one who they are."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser
from pydantic import SecretStr

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.settings.model import Settings
from tests.conftest import new_lake, services_of
from tests.support.browsers import Visit, browser, visit
from tests.support.lineage_events import event, foreign
from tests.support.lineage_events import table as table_dataset
from tests.support.logins import SECRET, Server
from tests.support.servers import running

__all__ = ["browser"]
LIMITS = QueryLimits(processes=1, memory_bytes=256 * 1024**2, disk_bytes=64 * 1024**2, seconds=60.0, rows=1_000_000)
SETTINGS = Settings(port=8282, oauth_keys=SecretStr("k:" + "0" * 32)).with_sources(
    {"port": "--port", "oauth_keys": "DUCKICELAKE_OAUTH_KEYS"}
)
KEPT_SECONDS = 7 * 86_400
"""Of what is dropped, as new lakes have it."""
HOSTILE = '<img src=x onerror="alert(1)">'
"""A name that would run a script wherever it became markup."""


@dataclass(frozen=True, slots=True)
class ShownLake:
    """Two servers on one lake: uri asks no one who they are, guarded does. Their clock stands until a test moves it."""

    uri: str
    guarded: str
    server: Server
    services: Services

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(method, f"{self.uri}{path}", json=body, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownLake]:
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        services, server = services_of(database, warehouse), Server()
        service._limits[database] = LIMITS
        with database.transaction() as cursor:
            set_retention(cursor, KEPT_SECONDS)
        login = server.authentication(OAuthClient("ana", SECRET, ("ns:sales:r",)))
        with (
            running(server.app(services, None, settings=SETTINGS)) as uri,
            running(server.app(services, login)) as guarded,
        ):
            shown = ShownLake(uri, guarded, server, services)
            fill(shown)
            write_all_changes(services)
            yield shown
        service.end_processes()
        del service._limits[database]


@pytest.fixture
def window(browser: Browser) -> Iterator[Visit]:
    """A window whose page complains of nothing. A refused request is a complaint, too."""
    made = visit(browser, color_scheme="light", permissions=["clipboard-read", "clipboard-write"])
    yield made
    made.context.close()
    assert made.complaints == []


def field(number: int, name: str, kind: object, *, required: bool = False, doc: str = "") -> dict[str, object]:
    return {"id": number, "name": name, "type": kind, "required": required, "doc": doc}


ORDERS = {
    "type": "struct",
    "schema-id": 0,
    "identifier-field-ids": [1],
    "fields": [
        field(1, "id", "long", required=True, doc="Number of the order"),
        field(2, "region", "string"),
        field(3, "amount", "decimal(12,2)", doc="In euro"),
        field(4, "ordered", "timestamptz"),
        field(5, "address", {"type": "struct", "fields": [field(6, "city", "string")]}),
    ],
}

BY_REGION = {
    "name": "by_region",
    "schema": {"type": "struct", "schema-id": 0, "fields": [field(1, "region", "string")]},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 0,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT DISTINCT region FROM sales.orders", "dialect": "duckdb"}],
        "default-namespace": [],
    },
    "properties": {},
}


def fill(lake: ShownLake) -> None:
    for levels in (["sales"], ["sales", "eu"], ["labs"]):
        lake.ask("POST", "/v1/namespaces", {"namespace": levels, "properties": {"comment": f"All of {levels[-1]}"}})
    spec = {"fields": [{"source-id": 2, "field-id": 1000, "name": "region", "transform": "identity"}]}
    table = {"name": "orders", "schema": ORDERS, "partition-spec": spec, "properties": {"comment": "One row an order"}}
    lake.ask("POST", "/v1/namespaces/sales/tables", table)
    for first in (0, 40):
        lake.ask("POST", "/v1/namespaces/sales/tables/orders/rows", [order(first + number) for number in range(40)])
        lake.ask("POST", "/v1/namespaces/sales/tables/orders/rows/flush")
    lake.ask("POST", "/v1/namespaces/sales/views", BY_REGION)
    lake.ask("POST", "/management/v1/principals", {"name": "ann", "kind": "service", "description": "Reports"})
    made = event(1, inputs=(foreign("s3://landing", "orders"),), outputs=(table_dataset("sales.orders"),), job="ingest")
    with lake.services.database.transaction() as cursor:
        record_events(cursor, [made], origin="catalog")
    plain = {"type": "struct", "schema-id": 0, "fields": [field(1, HOSTILE, "string", doc=HOSTILE)]}
    for name in (HOSTILE, "a.b/c~d", "javascript:alert(1)"):
        lake.ask("POST", "/v1/namespaces/labs/tables", {"name": name, "schema": plain})


def order(number: int) -> dict[str, object]:
    region = ("north", "south")[number % 2]
    time = f"2026-11-{1 + number % 28:02}T10:00:00Z"
    return {"id": number, "region": region, "amount": f"{number}.50", "ordered": time, "address": {"city": "Porto"}}
