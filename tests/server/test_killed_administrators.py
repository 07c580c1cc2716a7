"""Warehouses whose administrator's process is killed with SIGKILL at each step: the same request completes its work.

Then the registry, the other database and the folders agree, whichever step it was.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duckicelake.catalog.warehouse import MARKER
from duckicelake.catalog.warehouses import list_warehouses
from duckicelake.errors import AlreadyExistsError, CatalogError, NoSuchWarehouseError
from duckicelake.lake.side_tables.warehouses import WarehouseRow
from tests.server.routes.test_idempotency import uuid7
from tests.server.test_other_databases import Elsewhere, cluster, elsewhere
from tests.support.killed_administrator import administer
from tests.support.killed_process import Mortal, Work

__all__ = ["cluster", "elsewhere"]
pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]
MOST_STEPS = 60
SCHEMA = "warehouse_w"


@dataclass
class Place:
    """Where the warehouse w is: in the first one's database, or in another."""

    site: Elsewhere
    server: Mortal
    is_elsewhere: bool

    @property
    def url(self) -> str | None:
        return self.site.url("us") if self.is_elsewhere else None

    def execute(self, statement: str) -> list[Any]:
        if self.is_elsewhere:
            return self.site.administer(statement, "us")
        with psycopg.connect(str(self.site.settings.database_url), autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def find_row(self) -> WarehouseRow | None:
        rows = [row for row in list_warehouses(self.site.services) if row.name != "eu"]
        assert len(rows) <= 1
        return rows[0] if rows else None

    def list_schemas(self) -> list[str]:
        found = self.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, 'warehouse_')")
        return sorted(name for (name,) in found)

    def find_markers(self) -> list[Path]:
        folder = Path(self.site.settings.warehouse_roots[0])
        return [path for path in folder.rglob(MARKER) if path.parent.name != "eu"]

    def list_markers(self) -> list[str]:
        return sorted(path.parent.name for path in self.find_markers())

    def do(self, act: str, name: str = "w", **body: Any) -> Any:
        return administer(self.site.services, self.site.settings, Work(act, name=name, body=body))

    def create(self, **body: Any) -> Any:
        return self.do("create", database_url=self.url, **body)

    def clear(self) -> None:
        for name in ("w", "v"):
            with suppress(NoSuchWarehouseError):
                self.do("drop", name, keeps_lake=False)
        self.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
        for marker in self.find_markers():  # a lake that was let go keeps its own
            marker.unlink()
        assert (self.find_row(), self.list_schemas(), self.list_markers()) == (None, [], [])


@pytest.fixture(params=["same database", "another database"])
def place(elsewhere: Elsewhere, request: pytest.FixtureRequest) -> Iterator[Place]:
    environment = elsewhere.settings.as_environment()
    with closing(Mortal("tests.support.killed_administrator", environment=environment)) as server:
        yield Place(elsewhere, server, request.param == "another database")


@dataclass(frozen=True)
class Act:
    """One request of an administrator.

    before: what there is: nothing, a warehouse, or a lake that was let go. after: whether there is a warehouse, whether
    there is a lake. done: what the same request gets if it has come to its end, without a key.
    """

    name: str
    before: str
    body: dict[str, Any]
    has_row: bool
    has_lake: bool
    done: type[CatalogError] | None


ACTS = {
    "create": Act("create", "nothing", {}, True, True, AlreadyExistsError),
    "adopt": Act("create", "lake", {"adopted_schema": SCHEMA}, True, True, AlreadyExistsError),
    "drop": Act("drop", "warehouse", {"keeps_lake": False}, False, False, NoSuchWarehouseError),
    "let go": Act("drop", "warehouse", {"keeps_lake": True}, False, True, NoSuchWarehouseError),
    "rename": Act("rename", "warehouse", {"name": "v"}, True, True, NoSuchWarehouseError),
    "move": Act("move", "warehouse", {}, True, True, None),
}


@pytest.mark.parametrize("has_key", [True, False], ids=["with a key", "without"])
@pytest.mark.parametrize("kind", ACTS)
def test_request_that_was_killed_is_completed_by_the_same(place: Place, kind: str, has_key: bool) -> None:
    if kind == "move" and not place.is_elsewhere:
        pytest.skip("a warehouse of the same database has no URL of its own")
    act = ACTS[kind]
    logs = []
    for step in range(MOST_STEPS):
        prepare(place, act.before)
        body = dict(act.body)
        if act.name == "create":
            body["database_url"] = place.url
        elif act.name == "move":
            body["url"] = place.site.url("us").replace("127.0.0.1", "localhost")
        work = Work(act.name, step, "w", body, uuid7() if has_key else None)
        ending = place.server.serve(work)
        logs.append(ending.log)
        if step % 4 == 0:  # a drop waits until the workers have closed what they served
            check_between(place)
        with suppress(*(() if has_key or act.done is None else (act.done,))):
            administer(place.site.services, place.site.settings, work)
        check_after(place, act, (step, ending))
        place.clear()
        if ending.answered:
            break
    assert ending.answered, logs
    assert len(ending.log) >= 2


def prepare(place: Place, before: str) -> None:
    place.clear()
    if before != "nothing":
        place.create()
    if before == "lake":
        place.do("drop", keeps_lake=True)
        assert place.list_schemas() == [SCHEMA]


def check_between(place: Place) -> None:
    """The first warehouse and the other one are served meanwhile, and w as it is or not at all."""
    row = place.find_row()
    for worker in place.site.workers:
        assert worker.get("/v1/namespaces").status_code == 200
        assert worker.get("/v1/eu/namespaces").status_code == 200
        answer = worker.get(f"/v1/{row.name if row else 'w'}/namespaces")
        allowed = {200} if row and row.is_active else {200, 404, 503}
        assert answer.status_code in allowed, answer.text


def check_after(place: Place, act: Act, at: Any) -> None:
    row = place.find_row()
    assert (row is not None) == act.has_row, at
    assert place.list_schemas() == ([SCHEMA] if act.has_lake else []), at
    assert place.list_markers() == (["w"] if act.has_lake else []), at
    if row is not None:
        assert row.state == "active", at
        if at[0] % 4 == 1:
            answer = place.site.http.get(f"/v1/{row.name}/namespaces")
            assert answer.status_code == 200, (at, answer.text)
    if place.is_elsewhere and act.has_lake:
        claimed = place.execute(f"SELECT warehouse_id FROM {SCHEMA}.duckicelake_registry")
        assert claimed == ([(row.warehouse_id,)] if row is not None else []), at
