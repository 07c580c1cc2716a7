"""Attackers by routes by warehouses: what one may not see is neither answered, named, taken nor changed.

Each attacker owns the namespace `mine` in both warehouses, and holds that by another kind of principal, or may do
everything in the other warehouse, or could once. A kind of principal without an attacker, an object that can have
grants without a victim, and a route without a row fail.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx
import pytest

from duckicelake.catalog import grants
from duckicelake.catalog.context import privileges
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.catalog.principals import (
    PrincipalChange,
    PrincipalRegistration,
    add_member,
    change_principal,
    create_principal,
    remove_member,
)
from duckicelake.catalog.warehouses import WarehouseWiring, find_warehouse, open_warehouse
from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.lake.side_tables import principals
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.permissions import Administration, InBody, InPath, Need, Public, WholeCatalog
from duckicelake.server.hooks import list_needs
from tests.conftest import new_lake, services_of
from tests.server.auth.test_permissions import BODIES, path_of
from tests.server.routes.test_idempotency import uuid7
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import running
from tests.support.view_requests import creation
from tests.support.waits import wait_until

Json = Any
WAREHOUSES: Final = ("", "north")
NEEDS: Final[dict[str, Need]] = {f"{method} {path}": need for (method, path), need in list_needs().items()}
VICTIMS: Final = {"warehouse": "", "namespace": "zqhr", "table": "secret", "view": "plan"}
"""What attackers have no right to, by kind of object; beside them are the table other and the view hidden."""
MINE: Final = ("table:mine.t", "view:mine.v", "namespace:mine")


@dataclass(frozen=True, slots=True)
class Attacker:
    """How a principal holds what it has.

    kind: its own. through: kinds of principals by which it holds it. had: it owned all, and does no more. scopes: of
    its tokens. owns: the warehouse that it owns whole. is_disabled: or what it holds it by is.
    """

    kind: principals.PrincipalKind = "service"
    through: tuple[principals.PrincipalKind, ...] = ()
    had: bool = False
    scopes: tuple[str, ...] = ("grants",)
    owns: str | None = None
    is_disabled: bool = False


ATTACKERS: Final[dict[str, Attacker]] = {
    "user": Attacker("user"),
    "service": Attacker(),
    "by-group": Attacker("user", ("group",)),
    "by-role": Attacker(through=("role",)),
    "by-roles": Attacker("user", ("group", "role", "role")),
    "bounded": Attacker(scopes=("ns:mine:*", "wh:north:ns:mine:*"), owns="both"),
    "revoked": Attacker(had=True),
    "out-of-role": Attacker(through=("role",), had=True),
    "of-disabled-role": Attacker(through=("role",), owns="both", is_disabled=True),
    "disabled": Attacker(owns="both", is_disabled=True),
    "of-first": Attacker(owns=""),
    "of-north": Attacker(owns="north"),
}


class Place:
    """Two warehouses with grants on, and their server."""

    def __init__(self, http: httpx.Client, lakes: dict[str, Services]) -> None:
        self.http, self.lakes = http, lakes
        self.tokens = {"root": token(http, "root")}
        self.metadata: dict[tuple[str, str], Json] = {}
        self.replayed = str(uuid7())

    def url(self, warehouse: str, path: str) -> str:
        """The path of a route in a warehouse; path: as without one."""
        root, _, rest = path.removeprefix("/").partition("/v1/")
        if not warehouse or (not rest and not path.startswith("/v1/")):
            return path
        if root == "management":
            return f"/management/v1/warehouses/{warehouse}/{rest}" if rest in {"grants", "policies"} else path
        return f"/{root}/v1/{warehouse}/{rest}" if rest else f"/v1/{warehouse}/{path.removeprefix('/v1/')}"

    def ask(
        self, who: str, warehouse: str, method: str, path: str, body: Json = None, **headers: str
    ) -> httpx.Response:
        content = None if body is None else json.dumps(body).encode()
        given = bearing(self.tokens[who]) | {"Content-Type": "application/json"}
        given |= {name.replace("_", "-"): text for name, text in headers.items()}
        return self.http.request(method, self.url(warehouse, path), content=content, headers=given)

    def done(self, warehouse: str, method: str, path: str, body: Json = None, **headers: str) -> Json:
        answer = self.ask("root", warehouse, method, path, body, **headers)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else None

    def look(self, warehouse: str) -> Json:
        """All that an attack might change, in both namespaces."""
        found = {}
        for namespace in ("zqhr", "mine"):
            for kind in ("tables", "views"):
                path = f"/v1/namespaces/{namespace}/{kind}"
                for one in self.done(warehouse, "GET", path)["identifiers"]:
                    loaded = self.done(warehouse, "GET", f"{path}/{one['name']}")
                    found[namespace, kind, one["name"]] = loaded["metadata-location"]
        return found

    def needles(self, warehouse: str) -> list[str]:
        """What no answer to an attacker may hold, whatever it asked for."""
        uuids = [self.metadata[warehouse, name]["table-uuid"] for name in ("secret", "other")]
        return [*uuids, '"other"', '"gone"', '"hidden"', "zqvalue"]


def change(who: str, target: str) -> GrantChange:
    return GrantChange(who, ("ownership",), parse_object(target))


def fill(place: Place, warehouse: str) -> None:
    for namespace, names in (("zqhr", ("secret", "other")), ("mine", ("t",))):
        place.done(warehouse, "POST", "/v1/namespaces", {"namespace": [namespace]})
        for name in names:
            tables = f"/v1/namespaces/{namespace}/tables"
            place.done(warehouse, "POST", tables, {"name": name, "schema": SCHEMA})
            key = {"Idempotency_Key": place.replayed} if name == "secret" else {}
            place.done(warehouse, "POST", f"{tables}/{name}/rows", [{"id": 1, "name": "zqvalue"}], **key)
            place.metadata[warehouse, name] = place.done(warehouse, "GET", f"{tables}/{name}")["metadata"]
    with place.lakes[warehouse].database.transaction() as cursor:
        set_retention(cursor, 3600)
    place.done(warehouse, "POST", "/v1/namespaces/zqhr/tables", {"name": "gone", "schema": SCHEMA})
    place.done(warehouse, "DELETE", "/v1/namespaces/zqhr/tables/gone")
    for namespace, name, sql in (
        ("zqhr", "plan", "SELECT 'zqvalue' AS id"),
        ("zqhr", "hidden", "SELECT 1 AS id"),
        ("mine", "v", "SELECT id, name AS city FROM zqhr.secret"),
    ):
        body = creation(name, {"duckdb": sql, "spark": sql})
        place.done(warehouse, "POST", f"/v1/namespaces/{namespace}/views", body)


def register(place: Place, name: str, attacker: Attacker) -> None:
    """Register an attacker, and give it what it has, or let it have had all and read the secret."""
    first = place.lakes[""]
    create_principal(first, PrincipalRegistration(name, attacker.kind, scopes=attacker.scopes))
    holder = name
    for number, kind in enumerate(attacker.through):
        container = f"{name}-{kind}-{number}"
        create_principal(first, PrincipalRegistration(container, kind))
        add_member(first, container, holder)
        holder = container
    for warehouse, services in place.lakes.items():
        is_owner = attacker.had or attacker.owns in {"both", warehouse}
        given = [change(holder, "warehouse")] if is_owner else [change(holder, target) for target in MINE]
        grants.change_grants(services, given)
    body = {"kind": "token"}
    made = place.done("", "POST", f"/management/v1/principals/{name}/secrets", body)
    place.tokens[name] = made["secret"]
    if not attacker.had:
        if attacker.is_disabled:
            change_principal(first, holder, PrincipalChange(is_disabled=True))
        return
    for warehouse in WAREHOUSES:  # so that this worker has it in memory
        path = "/v1/namespaces/zqhr/tables/secret"
        wait_until(lambda lake=warehouse, path=path: place.ask(name, lake, "GET", path).status_code == 200)  # type: ignore[misc]
        for _ in range(2):
            assert place.ask(name, warehouse, "GET", path).status_code == 200
    if attacker.through:
        remove_member(first, holder, name)
        holder = name
    for services in place.lakes.values():
        grants.change_grants(services, [change(holder, target) for target in MINE], [change(holder, "warehouse")])


@pytest.fixture(scope="module")
def place(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("attacked")
    limits = QueryLimits(processes=1, memory_bytes=256 * 1024**2, disk_bytes=0, seconds=60.0, rows=1000)
    with ExitStack() as stack:
        url = stack.enter_context(new_lake(postgres, folder / "lake"))
        database = stack.enter_context(closing(open_lake_database(url, pool_size=6)))
        services = replace(services_of(database, folder / "lake"), rights=RightsCache.of_first(database))
        logins = Server().authentication(OAuthClient("root", SECRET, ("*",)), database=database)
        wiring = WarehouseWiring(roots=(f"{folder}/warehouses",))
        app = create_app(services, authentication=logins, wiring=wiring)
        uri = stack.enter_context(running(app))
        http = stack.enter_context(httpx.Client(base_url=uri, timeout=60))
        stack.enter_context(closing(app.warehouses))
        made = Place(http, {"": services})
        made.done("", "POST", "/management/v1/warehouses", {"name": "north"})
        north = open_warehouse(services, wiring, find_warehouse(services, "north"))
        made.lakes["north"] = north
        for warehouse in WAREHOUSES:
            fill(made, warehouse)
            write_all_changes(made.lakes[warehouse])
        create_principal(services, PrincipalRegistration("root", "service"))
        for each in made.lakes.values():
            grants.change_grants(each, [change("root", "warehouse")])
            grants.set_grants(each, is_on=True)
        for name, attacker in ATTACKERS.items():
            register(made, name, attacker)
        service._limits[database] = limits
        stack.callback(service.end_processes)
        stack.callback(service._limits.pop, database)
        yield made


def attacks(name: str) -> Iterator[str]:
    """The warehouses whose secrets an attacker may not have."""
    attacker = ATTACKERS[name]
    for warehouse in WAREHOUSES:
        if attacker.owns != warehouse:
            yield warehouse


def test_each_kind_of_principal_attacks_and_each_kind_of_object_is_attacked() -> None:
    kinds = {kind for one in ATTACKERS.values() for kind in (one.kind, *one.through)}
    assert kinds == set(principals.KINDS)
    assert set(VICTIMS) == set(privileges.KINDS)


@pytest.mark.parametrize("who", ATTACKERS)
def test_attacker_has_what_it_holds(place: Place, who: str) -> None:
    """Else its attacks would fail for want of any right."""
    attacker = ATTACKERS[who]
    for warehouse in WAREHOUSES:
        secret = place.ask(who, warehouse, "GET", "/v1/namespaces/zqhr/tables/secret").status_code
        mine = place.ask(who, warehouse, "GET", "/v1/namespaces/mine/tables/t").status_code
        assert (secret == 200) == (warehouse not in attacks(who))
        assert (mine == 200) != attacker.is_disabled


def is_refused(need: Need) -> bool:
    return isinstance(need, InPath | InBody | WholeCatalog | Administration)


def check_route(place: Place, who: str, warehouse: str, route: str) -> None:
    method, _ = route.split()
    path = path_of(route, "zqhr", VICTIMS["table"], VICTIMS["view"])
    if isinstance(NEEDS[route], Administration):
        path = path.replace("/warehouses/x", "/warehouses/north")
    body = BODIES.get(route)
    if body is not None:
        text = json.dumps(body).replace('["sales", "eu"]', '["zqhr"]').replace('"t"', '"secret"')
        body = json.loads(text.replace('"v"', '"plan"'))
    answer = place.ask(who, warehouse, method, path, body)
    what = (who, warehouse, route, answer.status_code, answer.text[:500])
    assert answer.status_code < 500, what
    if is_refused(NEEDS[route]):
        assert answer.status_code in {401, 403}, what
    text = answer.text + str(answer.headers)
    assert [needle for needle in place.needles(warehouse) if needle in text] == [], what


ROUTES: Final = sorted(route for route, need in NEEDS.items() if not isinstance(need, Public))


@pytest.mark.parametrize("route", ROUTES)
def test_no_route_answers_names_or_takes_what_is_anothers(place: Place, route: str) -> None:
    """Each route, and one attacker for each warehouse; the next route has the next ones."""
    number = ROUTES.index(route)
    names = list(ATTACKERS)
    for warehouse in WAREHOUSES:
        who = next(name for name in names[number % len(names) :] + names if warehouse in attacks(name))
        check_route(place, who, warehouse, route)
        number += 5


@pytest.mark.commands
@pytest.mark.parametrize("who", ATTACKERS)
def test_no_attacker_gets_through_any_route(place: Place, who: str) -> None:
    before = {warehouse: place.look(warehouse) for warehouse in WAREHOUSES}
    for warehouse in attacks(who):
        for route in ROUTES:
            check_route(place, who, warehouse, route)
    assert {warehouse: place.look(warehouse) for warehouse in WAREHOUSES} == before


Request = tuple[str, str, Json]
Way = Callable[[Place, str], Iterator[Request]]
"""Requests by which the owner of `mine` tries to get at what is in zqhr of a warehouse."""


def names(source: str, target: str) -> Json:
    (from_, name), (to, other) = source.split("."), target.split(".")
    return {"source": {"namespace": [from_], "name": name}, "destination": {"namespace": [to], "name": other}}


def move(_: Place, __: str) -> Iterator[Request]:
    for kind, mine, theirs in (("tables", "t", "secret"), ("views", "v", "plan")):
        yield "POST", f"/v1/{kind}/rename", names(f"zqhr.{theirs}", "mine.taken")
        yield "POST", f"/v1/{kind}/rename", names(f"mine.{mine}", "zqhr.put")
        yield "POST", f"/v1/{kind}/rename", names(f"mine.{mine}", f"zqhr.{theirs}")
    yield "POST", "/v1/namespaces/zqhr/rename", {"destination": ["mine", "taken"]}
    yield "POST", "/v1/namespaces/mine/rename", {"destination": ["zqhr", "put"]}
    yield "POST", "/v1/namespaces/mine/rename", {"destination": ["zqhr"]}
    yield "POST", "/v1/namespaces", {"namespace": ["zqhr", "put"]}


def clone(_: Place, __: str) -> Iterator[Request]:
    theirs, mine = ({"namespace": [of], "name": name} for of, name in (("zqhr", "secret"), ("mine", "t")))
    yield "POST", "/v1/namespaces/mine/clone", {"name": "taken", "source": theirs}
    yield "POST", "/v1/namespaces/zqhr/clone", {"name": "put", "source": mine}
    yield "POST", "/v1/namespaces/mine/clone", {"name": "taken", "source": theirs, "at": "2020-01-01T00:00:00Z"}


def name_files(place: Place, _: str) -> Iterator[Request]:
    """Take files of both warehouses' secrets for one's own."""
    for other in WAREHOUSES:
        metadata = place.metadata[other, "secret"]
        location = place.look(other)["zqhr", "tables", "secret"]
        view = place.look(other)["zqhr", "views", "plan"]
        for name in ("taken", "t"):
            body = {"name": name, "metadata-location": location, "overwrite": True}
            yield "POST", "/v1/namespaces/mine/register", body
        yield "POST", "/v1/namespaces/mine/register-view", {"name": "taken", "metadata-location": view}
        for folder in (metadata["location"], f"{metadata['location']}/below"):
            yield "POST", "/v1/namespaces/mine/tables", {"name": "taken", "schema": SCHEMA, "location": folder}
            for property_ in ("write.data.path", "write.metadata.path"):
                properties = [{"action": "set-properties", "updates": {property_: folder}}]
                yield "POST", "/v1/namespaces/mine/tables/t", {"requirements": [], "updates": properties}
            updates: Json = [{"action": "set-location", "location": folder}]
            yield "POST", "/v1/namespaces/mine/tables/t", {"requirements": [], "updates": updates}
        snapshot = metadata["snapshots"][-1]
        for summary in ("append", "overwrite"):
            added: Json = {**snapshot, "snapshot-id": 77, "sequence-number": 99, "summary": {"operation": summary}}
            added = {name: value for name, value in added.items() if name != "parent-snapshot-id"}
            updates = [
                {"action": "add-snapshot", "snapshot": added},
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 77},
            ]
            yield "POST", "/v1/namespaces/mine/tables/t", {"requirements": [], "updates": updates}


def join_in_transactions(_: Place, __: str) -> Iterator[Request]:
    update = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    mine, theirs = (
        {"identifier": {"namespace": [of], "name": name}, **update} for of, name in (("mine", "t"), ("zqhr", "secret"))
    )
    for changes in ([mine, theirs], [theirs, mine], [theirs]):
        yield "POST", "/v1/transactions/commit", {"table-changes": changes}


def undo(_: Place, __: str) -> Iterator[Request]:
    for kind, name in (("table", "gone"), ("table", "secret"), ("view", "plan"), ("table", "never")):
        yield "POST", "/v1/namespaces/zqhr/undrop", {"kind": kind, "name": name, "new-name": "put"}
    yield "POST", "/v1/namespaces/zqhr/undrop", {"kind": "namespace"}
    yield "POST", "/v1/namespaces/zqhr/tables/secret/restore", {"to": {"snapshot-id": 1}}


def give_oneself(_: Place, __: str) -> Iterator[Request]:
    for target in (
        {"kind": "warehouse"},
        {"kind": "namespace", "namespace": ["zqhr"]},
        {"kind": "table", "namespace": ["zqhr"], "name": "secret"},
        {"kind": "view", "namespace": ["zqhr"], "name": "plan"},
    ):
        for who in ATTACKERS:
            given = {"principal": who, "privileges": ["select"], "object": target}
            yield "POST", "/management/v1/grants", {"grant": [given]}
        taken = {"principal": "root", "privileges": ["ownership"], "object": target}
        yield "POST", "/management/v1/grants", {"revoke": [taken]}
    table = {"namespace": ["zqhr"], "name": "secret"}
    yield "POST", "/management/v1/policies", {"name": "p", "table": table, "condition": "id = 1"}
    yield (
        "POST",
        "/management/v1/policies",
        {"name": "p", "table": table, "column": "name", "mask": "replace-with-null"},
    )
    yield "POST", "/management/v1/policies", {"name": "p", "tag": "pii", "mask": "replace-with-null"}
    yield "POST", "/management/v1/column-tags", {"give": [{"tag": "pii", "table": table, "column": "name"}]}


def ask_sql(_: Place, __: str) -> Iterator[Request]:
    for statement in (
        "FROM zqhr.secret",
        "FROM zqhr.plan",
        "FROM mine.v",
        "SELECT * FROM mine.t JOIN zqhr.secret USING (id)",
        "FROM zqhr.secret AT (VERSION => 1)",
        "SELECT (SELECT max(name) FROM zqhr.secret)",
        "WITH mine AS (FROM zqhr.secret) FROM mine",
        "FROM duckicelake.zqhr.secret",
        "FROM north.zqhr.secret",
    ):
        yield "POST", "/sql/v1/query", {"sql": statement}


def claim(_: Place, __: str) -> Iterator[Request]:
    """Say that a view of one's own leads to it."""
    for views in ("mine.v", "mine%1Fv", "%1Fmine%1Fv", "mine.v,zqhr.plan"):
        yield "GET", f"/v1/namespaces/zqhr/tables/secret?referenced-by={views}", None


def spell(_: Place, __: str) -> Iterator[Request]:
    for namespace in ("zqhr", "z%71hr", "%7aqhr", "mine/../zqhr", "mine%2F..%2Fzqhr", "./zqhr"):
        for name in ("secret", "%73ecret"):
            yield "GET", f"/v1/namespaces/{namespace}/tables/{name}", None
    for prefix in ("north", "_north", "%6Eorth", "duckicelake", "_duckicelake", "north%2F", "duckicelake/north"):
        yield "GET", f"/v1/{prefix}/namespaces/zqhr/tables/secret", None


WAYS: Final[dict[str, Way]] = {
    "move": move, "clone": clone, "name files": name_files, "transactions": join_in_transactions, "undo": undo,
    "grants": give_oneself, "sql": ask_sql, "referenced-by": claim, "spellings": spell,
}  # fmt: skip
EVERYONE: Final = [name for name, attacker in ATTACKERS.items() if attacker.owns is None]


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_round(place: Place, way: str) -> None:
    before = {warehouse: place.look(warehouse) for warehouse in WAREHOUSES}
    for number, warehouse in enumerate(WAREHOUSES):
        who = EVERYONE[(list(WAYS).index(way) + number) % len(EVERYONE)]
        for method, path, body in WAYS[way](place, warehouse):
            answer = place.ask(who, warehouse, method, path, body)
            what = (who, warehouse, path, body, answer.status_code, answer.text[:500])
            assert 400 <= answer.status_code < 500, what
            assert "zqvalue" not in answer.text, what
    assert {warehouse: place.look(warehouse) for warehouse in WAREHOUSES} == before


@pytest.mark.parametrize("who", ["of-first", "of-north"])
def test_owner_of_a_warehouse_takes_no_file_of_another(place: Place, who: str) -> None:
    own = ATTACKERS[who].owns
    assert own is not None
    other = next(warehouse for warehouse in WAREHOUSES if warehouse != own)
    secret = place.metadata[other, "secret"]["location"]
    for method, path, body in name_files(place, own):
        if secret in json.dumps(body) or place.look(other)["zqhr", "views", "plan"] in json.dumps(body):
            answer = place.ask(who, own, method, path, body)
            assert 400 <= answer.status_code < 500, (path, body, answer.status_code, answer.text)


def test_replay_of_anothers_key_answers_nothing(place: Place) -> None:
    path, rows = "/v1/namespaces/zqhr/tables/secret/rows", [{"id": 1, "name": "zqvalue"}]
    for warehouse in WAREHOUSES:
        again = place.ask("root", warehouse, "POST", path, rows, Idempotency_Key=place.replayed)
        assert again.status_code == 200, again.text
        for who in ATTACKERS:
            if warehouse in attacks(who):
                answer = place.ask(who, warehouse, "POST", path, rows, Idempotency_Key=place.replayed)
                assert answer.status_code in {401, 403}, (who, answer.text)
