"""Warehouses in other databases: a second Postgres that takes a login over TCP, with a server and its commands."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import httpx
import psycopg
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from duckicelake.catalog import grants, warehouse_databases, warehouse_registry, warehouse_removal
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouse_registry import create_warehouse, rotate_secrets
from duckicelake.catalog.warehouse_removal import drop_warehouse
from duckicelake.catalog.warehouses import WarehouseWiring, find_warehouse, list_warehouses, open_warehouse
from duckicelake.cli.main import app as commands
from duckicelake.cli.wiring.services import build_warehouse_wiring
from duckicelake.errors import CatalogError, UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.side_tables import warehouses as registry
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from tests.conftest import new_duckdb, new_lake, services_of
from tests.server.auth.test_grant_routes import ON_NAMESPACE, ON_OBJECT, may
from tests.server.auth.test_permissions import ABSENT, BODIES, VIEW, Lake, path_of
from tests.support.client import SCHEMA
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.replicas import Cluster, running_cluster
from tests.support.servers import running
from tests.support.view_requests import creation

LOG = StringIO()
PASSWORD = "correct/horse@battery"
KEYS = f"old:{'o' * 32}"
NEW_KEYS = f"new:{'n' * 32},{KEYS}"
TABLE = "namespaces/ns/tables/t"


@dataclass
class Elsewhere:
    """Two workers of a server whose warehouse `eu` is in another cluster."""

    cluster: Cluster
    settings: Settings
    services: Services
    workers: list[httpx.Client]
    log: StringIO

    @property
    def wiring(self) -> WarehouseWiring:
        return build_warehouse_wiring(self.settings)

    @property
    def http(self) -> httpx.Client:
        return self.workers[0]

    def url(self, database: str = "eu", password: str = "correct%2Fhorse%40battery", port: int | None = None) -> str:
        return f"postgresql://lake:{password}@127.0.0.1:{port or self.cluster.port}/{database}"

    def administer(self, statement: str, database: str = "postgres") -> list[Any]:
        url = f"postgresql://postgres@{self.cluster.address}/{database}"
        with psycopg.connect(url, autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def command(self, *arguments: str, stdin: str | None = None, code: int = 0) -> str:
        ran = CliRunner().invoke(commands, list(arguments), env=dict(self.settings.as_environment()), input=stdin)
        assert ran.exit_code == code, ran.output
        return ran.output


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE lake LOGIN PASSWORD '{PASSWORD}'")
            for name in ("eu", "us"):
                connection.execute(f"CREATE DATABASE {name} OWNER lake")
            file = cluster.folder / "data" / "pg_hba.conf"
            file.write_text("host all lake 127.0.0.1/32 scram-sha-256\n" + file.read_text())
            connection.execute("SELECT pg_reload_conf()")
        yield cluster


@pytest.fixture(scope="module")
def elsewhere(
    postgres: EmbeddedPostgres, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Elsewhere]:
    folder = tmp_path_factory.mktemp("elsewhere")
    with new_lake(postgres, folder / "warehouse") as url, ExitStack() as stack:
        settings = Settings(
            database_url=url,
            warehouse=str(folder / "warehouse"),
            warehouse_roots=(f"{folder}/warehouses",),
            secret_keys=SecretStr(KEYS),
            allowed_addresses=("127.0.0.1",),
        )
        workers, log = [], StringIO()
        for _ in range(2):
            database = stack.enter_context(closing(open_lake_database(url, pool_size=4)))
            services = replace(services_of(database, folder / "warehouse"), rights=RightsCache.of_first(database))
            app = create_app(services, log=make_logger(log), wiring=build_warehouse_wiring(settings))
            stack.callback(app.warehouses.close)
            workers.append(stack.enter_context(httpx.Client(base_url=stack.enter_context(running(app)), timeout=60)))
        site = Elsewhere(cluster, settings, services, workers, log)
        created = site.http.post("/management/v1/warehouses", json={"name": "eu", "database-url": site.url()})
        assert created.status_code == 200, created.text
        create_table(site.http, "eu")
        yield site


def create_table(http: httpx.Client, warehouse: str, name: str = "t") -> None:
    prefix = f"/v1/{warehouse}/" if warehouse else "/v1/"
    assert http.post(f"{prefix}namespaces", json={"namespace": ["ns"]}).status_code in (200, 409)
    made = http.post(f"{prefix}namespaces/ns/tables", json={"name": name, "schema": SCHEMA})
    assert made.status_code == 200, made.text


def test_lake_is_in_the_other_database_and_no_answer_has_the_password(elsewhere: Elsewhere) -> None:
    found = elsewhere.administer("SELECT schema_name FROM warehouse_eu.ducklake_schema ORDER BY 1", "eu")
    assert found == [("main",), ("ns",)]
    shown = elsewhere.http.get("/management/v1/warehouses/eu").json()
    assert shown["database-url"] == f"postgresql://lake@127.0.0.1:{elsewhere.cluster.port}/eu"
    texts = [
        json.dumps(shown),
        elsewhere.http.get("/management/v1/warehouses").text,
        elsewhere.command("warehouse", "list", "--json"),
        elsewhere.command("warehouse", "show", "eu"),
        elsewhere.command("export"),
        elsewhere.command("info", "--warehouse", "eu"),
        elsewhere.command("audit", "--json"),
        elsewhere.log.getvalue(),
        repr(find_warehouse(elsewhere.services, "eu")),
        repr(NewWarehouse("x", database_url=elsewhere.url())),
    ]
    with elsewhere.services.database.reading() as cursor:
        texts.append(str(cursor.execute("SELECT * FROM duckicelake_warehouse").fetchall()))
    for text in texts:
        assert "horse" not in text


def test_requests_rows_and_duckdb_reach_it(
    elsewhere: Elsewhere, extensions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(elsewhere.http, "eu", "rows")
    posted = elsewhere.http.post("/v1/eu/namespaces/ns/tables/rows/rows", json=[{"id": 1}, {"id": 2}])
    assert posted.status_code == 200, posted.text
    assert elsewhere.workers[1].get("/v1/eu/namespaces/ns/tables/rows").status_code == 200
    attach = next(
        line.split(maxsplit=1)[1]
        for line in elsewhere.command("info", "--warehouse", "eu").splitlines()
        if line.startswith("duckdb-attach")
    )
    assert "horse" not in attach
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with new_duckdb() as duckdb:
        duckdb.execute(attach)
        assert duckdb.execute("SELECT sum(id) FROM eu.ns.rows").fetchall() == [(3,)]
    for command in (("doctor", "--warehouse", "eu"), ("history", "ns.rows", "--warehouse", "eu")):
        elsewhere.command(*command)


BAD_URLS = {
    "postgresql:///eu?host=/var/run/postgresql&user=lake": "socket",
    "postgresql://lake@127.0.0.1/eu": "password",
    "postgresql://lake:x@10.1.2.3/eu": "isn't public",
    "postgresql://lake:x@127.0.0.1,169.254.169.254/eu": "isn't public",
    "postgresql://lake:x@127.0.0.1/eu?sslkey=/etc/key": "sslkey",
    "postgresql://lake:x@127.0.0.1/eu?service=x": "service",
    "postgresql://lake:x@127.0.0.1/eu?sslrootcert=/etc/passwd": "sslrootcert",
    "postgresql://lake:x@127.0.0.1/eu?options=-csearch_path%3Dx": "options",
    "postgresql://lake:x@127.0.0.1/eu?hostaddr=169.254.169.254": "hostaddr",
    "postgresql://lake:x@127.1/eu": "Invalid",
    "postgresql://127.0.0.1/eu": "user",
    "postgresql://lake:x@127.0.0.1": "dbname",
    "http://127.0.0.1/eu": "expected",
    "host=127.0.0.1 dbname=eu": "expected",
}


@pytest.mark.parametrize("url", BAD_URLS)
def test_bad_url_is_refused_and_leaves_nothing(elsewhere: Elsewhere, url: str) -> None:
    answer = elsewhere.http.post("/management/v1/warehouses", json={"name": "bad", "database-url": url})
    assert answer.status_code == 400, answer.text
    assert BAD_URLS[url] in answer.json()["error"]["message"]
    assert not {"bad", "us"} & {row.name for row in list_warehouses(elsewhere.services)}


def test_logins_of_duckdb_are_refused_with_the_reason(elsewhere: Elsewhere) -> None:
    answer = elsewhere.http.post("/duckdb/v1/eu/logins", json={})
    assert answer.status_code == 406, answer.text
    assert "Warehouse eu is in another Postgres" in answer.text
    assert "/sql/v1/eu/query" in answer.text


def test_database_that_refuses_or_is_away_makes_no_warehouse(elsewhere: Elsewhere) -> None:
    for url in (elsewhere.url(password="wrong"), elsewhere.url("none"), elsewhere.url(port=1)):
        answer = elsewhere.http.post("/management/v1/warehouses", json={"name": "bad", "database-url": url})
        assert answer.status_code == 503, answer.text
        assert "wrong" not in answer.text.replace("password authentication", "")
    assert not {"bad", "us"} & {row.name for row in list_warehouses(elsewhere.services)}


@pytest.fixture
def governed(elsewhere: Elsewhere) -> Iterator[Services]:
    """The services of the warehouse with grants on; anonymous is in the role readers, that is in the role staff."""
    with elsewhere.services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_principal (name, kind) "
            "VALUES ('anonymous', 'user'), ('readers', 'role'), ('staff', 'role')"
        )
        cursor.execute(
            "INSERT INTO duckicelake_membership SELECT c.principal_id, m.principal_id FROM duckicelake_principal c, "
            "duckicelake_principal m WHERE (c.name, m.name) IN (('readers', 'anonymous'), ('staff', 'readers'))"
        )
    own = open_warehouse(elsewhere.services, elsewhere.wiring, find_warehouse(elsewhere.services, "eu"))
    grants.set_grants(own, is_on=True)
    time.sleep(2.2)  # for so long a worker may take grants for off
    yield own
    grants.set_grants(own, is_on=False)
    with elsewhere.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_principal WHERE name NOT IN ('admin', 'trusted-engine')")
    own.database.close()
    time.sleep(1.1)


def wait_for(http: httpx.Client, path: str, status: int, seconds: float = 1.2) -> None:
    until = time.monotonic() + seconds
    while (answer := http.get(path)).status_code != status:
        assert time.monotonic() < until, answer.text
        time.sleep(0.02)


def test_grants_memberships_and_their_ends_count_on_both_workers(elsewhere: Elsewhere, governed: Services) -> None:
    path = f"/v1/eu/{TABLE}"
    for http in elsewhere.workers:
        assert http.get(path).status_code == 403
    change = {
        "grant": [
            {"principal": "staff", "privileges": ["select"], "object": {"kind": "namespace", "namespace": ["ns"]}}
        ]
    }
    given = elsewhere.http.post("/management/v1/warehouses/eu/grants", json=change)
    assert (given.json()["granted"], given.json()["revoked"]) == (1, 0)
    for http in elsewhere.workers:
        wait_for(http, path, 200)
    with elsewhere.services.database.transaction() as cursor:
        cursor.execute(
            "DELETE FROM duckicelake_membership WHERE container_id = "
            "(SELECT principal_id FROM duckicelake_principal WHERE name = 'staff')"
        )
    for http in elsewhere.workers:
        wait_for(http, path, 403)
    explained = elsewhere.command("why", "anonymous", "select", "table:ns.t", "--warehouse", "eu", code=1)
    assert "may not select" in explained
    held = elsewhere.administer("SELECT count(*) FROM warehouse_eu.duckicelake_grant", "eu")
    assert held == [(1,)]
    with elsewhere.services.database.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM duckicelake_grant").fetchall() == [(0,)]


def test_creator_owns_and_a_new_principal_of_the_name_inherits_nothing(
    elsewhere: Elsewhere, governed: Services
) -> None:
    grants.change_grants(governed, [grants.GrantChange("anonymous", ("create",), grants.parse_object("namespace:ns"))])
    made = elsewhere.http.post("/v1/eu/namespaces/ns/tables", json={"name": "own", "schema": SCHEMA})
    assert made.status_code == 200, made.text
    assert elsewhere.http.post("/v1/eu/namespaces/ns/tables/own/rows", json=[{"id": 1}]).status_code == 200
    dropped = elsewhere.http.delete("/v1/eu/namespaces/ns/tables/own")
    assert dropped.status_code == 204, dropped.text
    undropped = elsewhere.http.post("/v1/eu/namespaces/ns/undrop", json={"name": "own", "kind": "table"})
    assert undropped.status_code == 200, undropped.text
    assert elsewhere.http.post("/v1/eu/namespaces/ns/tables/own/rows", json=[{"id": 2}]).status_code == 200
    with elsewhere.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_principal WHERE name = 'anonymous'")
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES ('anonymous', 'user')")
    for http in elsewhere.workers:
        wait_for(http, f"/v1/eu/{TABLE}", 403)
    assert grants.list_grants(governed, "anonymous").items == ()


def test_options_are_read_back_and_followed(elsewhere: Elsewhere) -> None:
    elsewhere.command("warehouse", "options", "eu", "max-tables=100", "requests-per-second=1000", "definer-keys=on")
    answer = elsewhere.http.get("/management/v1/warehouses/eu/options").json()["options"]
    assert {name: answer[name] for name in ("max-tables", "requests-per-second", "definer-keys")} == {
        "max-tables": "100",
        "requests-per-second": "1000",
        "definer-keys": "on",
    }
    assert find_warehouse(elsewhere.services, "eu").options == {"requests-per-second": "1000"}
    elsewhere.command("warehouse", "options", "eu", "max-tables=", "requests-per-second=", "definer-keys=")


ATTACKERS = ("select-here", "insert-here", "drop-above", "create-above", "ownership-here", "nothing", "elsewhere")
ATTACKED = sorted(route for route in {**ON_NAMESPACE, **ON_OBJECT} if "/v1/namespaces" in route)


class Attacked(Lake):
    """The lake of the attack table, as a warehouse in another database."""

    def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return super().ask(who, method, path.replace("/v1/namespaces", "/v1/attacked/namespaces", 1), body, **headers)


@pytest.fixture(scope="module")
def attacked(elsewhere: Elsewhere) -> Iterator[Attacked]:
    new = NewWarehouse("attacked", database_url=elsewhere.url("us"))
    row, server = create_warehouse(elsewhere.services, elsewhere.wiring, new), Server()
    clients = [OAuthClient(who, SECRET, ("grants",)) for who in ATTACKERS] + [OAuthClient("root", SECRET, ("*",))]
    app = create_app(
        elsewhere.services,
        authentication=server.authentication(*clients),
        wiring=elsewhere.wiring,
        log=make_logger(LOG),
    )
    own = open_warehouse(elsewhere.services, elsewhere.wiring, row)
    with running(app) as uri, httpx.Client(base_url=uri, timeout=60) as http, closing(app.warehouses):
        lake = object.__new__(Attacked)
        lake.http, lake.view, lake.headers = http, "", {"root": bearing(token(http, "root"))}
        for namespace in (["hr"], ["sales"], ["sales", "eu"]):
            lake.done("POST", "/v1/namespaces", {"namespace": namespace})
        for name in ("t", "t2"):
            lake.done("POST", "/v1/namespaces/sales%1Feu/tables", {"name": name, "schema": SCHEMA})
        for name in ("v", "v2"):
            lake.done("POST", "/v1/namespaces/sales%1Feu/views", creation(name))
        lake.view = lake.ask("root", "GET", path_of(f"GET {VIEW}")).json()["metadata-location"]
        with elsewhere.services.database.transaction() as cursor:
            for who in ATTACKERS:
                cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'service')", (who,))
        given = [("elsewhere", "ownership", "namespace:hr")]
        for who in ATTACKERS[:-2]:
            privilege, _, place = who.rpartition("-")
            here = ("table:sales.eu.t", "view:sales.eu.v") if place == "here" else ("namespace:sales",)
            given += [(who, privilege, target) for target in here]
        changes = [grants.GrantChange(who, (name,), grants.parse_object(target)) for who, name, target in given]
        grants.change_grants(own, changes)
        grants.set_grants(own, is_on=True)
        time.sleep(2.2)
        lake.headers |= {who: bearing(token(http, who)) for who in ATTACKERS}
        yield lake
    own.database.close()
    drop_warehouse(elsewhere.services, elsewhere.wiring, "attacked", forces=True)
    with elsewhere.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_principal WHERE name = ANY (%s)", (list(ATTACKERS),))


@pytest.mark.parametrize("route", ATTACKED)
def test_attack_table_holds_in_another_database(attacked: Attacked, route: str) -> None:
    method, _ = route.split()
    path = path_of(route, table="no", view="no") if route in ABSENT else path_of(route)
    for who in ATTACKERS:
        expected = may(route, who)
        answer = attacked.ask(
            who, method, path, BODIES.get(route) or ([{"id": "x"}] if path.endswith("/rows") else None)
        )
        if expected is not None:
            assert (answer.status_code not in {401, 403}) == expected, (who, answer.status_code, answer.text)
            assert answer.status_code < 500, answer.text


STEPS = {
    "registered": (warehouse_registry, "open_warehouse"),
    "occupied": (warehouse_registry, "_prepare_new"),
    "prepared": (warehouse_databases, "claim_lake"),
    "claimed": (registry, "set_state"),
}
DROP_STEPS = {
    "dropping": (warehouse_removal, "_drop_registered"),
    "schema dropped": (warehouse_removal, "_forget_warehouse"),
}


class Killed(BaseException):
    """Ends a step as SIGKILL would: no clean-up that the code does may run after it."""


def stop_at(patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    """Die before a step, and make what would clean up then do nothing."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    patch.setattr(module, name, die)
    patch.setattr(warehouse_registry, "_unregister", die)
    patch.setattr(warehouse_databases, "vacate_schema", die)


@pytest.mark.parametrize("step", STEPS)
def test_creation_that_was_killed_is_completed_or_dropped(
    elsewhere: Elsewhere, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = NewWarehouse("us", database_url=elsewhere.url("us"))
    for ends in ("completed", "dropped"):
        with monkeypatch.context() as patch, suppress(Killed):
            stop_at(patch, *STEPS[step])
            create_warehouse(elsewhere.services, elsewhere.wiring, new)
            raise AssertionError("it was not killed")
        assert find_warehouse(elsewhere.services, "us").state == "creating"
        if ends == "completed":
            assert create_warehouse(elsewhere.services, elsewhere.wiring, new).state == "active"
        drop_warehouse(elsewhere.services, elsewhere.wiring, "us")
        assert elsewhere.administer("SELECT FROM pg_namespace WHERE nspname = 'warehouse_us'", "us") == []


@pytest.mark.parametrize("step", DROP_STEPS)
def test_drop_that_was_killed_is_completed(elsewhere: Elsewhere, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create_warehouse(elsewhere.services, elsewhere.wiring, NewWarehouse("us", database_url=elsewhere.url("us")))
    with monkeypatch.context() as patch, suppress(Killed):
        stop_at(patch, *DROP_STEPS[step])
        drop_warehouse(elsewhere.services, elsewhere.wiring, "us")
    assert find_warehouse(elsewhere.services, "us").state == "dropping"
    elsewhere.administer("SET ROLE lake; CREATE SCHEMA IF NOT EXISTS strange", "us")
    drop_warehouse(elsewhere.services, elsewhere.wiring, "us")
    assert not {"bad", "us"} & {row.name for row in list_warehouses(elsewhere.services)}


def test_schema_of_another_is_neither_taken_nor_dropped(elsewhere: Elsewhere) -> None:
    elsewhere.administer("SET ROLE lake; CREATE SCHEMA warehouse_us; CREATE TABLE warehouse_us.mine (x int)", "us")
    new = NewWarehouse("us", database_url=elsewhere.url("us"))
    with pytest.raises(CatalogError, match="has a schema warehouse_us"):
        create_warehouse(elsewhere.services, elsewhere.wiring, new)
    assert elsewhere.administer("SELECT count(*) FROM warehouse_us.mine", "us") == [(0,)]
    assert not {"bad", "us"} & {row.name for row in list_warehouses(elsewhere.services)}
    elsewhere.administer("DROP SCHEMA warehouse_us CASCADE", "us")


def test_lake_is_let_go_and_adopted_again_and_a_first_one_is_not(elsewhere: Elsewhere) -> None:
    new = NewWarehouse("us", database_url=elsewhere.url("us"))
    made = create_warehouse(elsewhere.services, elsewhere.wiring, new)
    again = NewWarehouse("us2", made.location, made.schema_name, database_url=elsewhere.url("us"))
    with pytest.raises(CatalogError):
        create_warehouse(elsewhere.services, elsewhere.wiring, again)
    drop_warehouse(elsewhere.services, elsewhere.wiring, "us", keeps_lake=True)
    assert elsewhere.administer("SELECT count(*) FROM warehouse_us.duckicelake_registry", "us") == [(0,)]
    assert create_warehouse(elsewhere.services, elsewhere.wiring, again).is_adopted
    drop_warehouse(elsewhere.services, elsewhere.wiring, "us2", keeps_lake=True)
    insert = "SET ROLE lake; INSERT INTO warehouse_us.duckicelake_principal (name, kind) VALUES ('x', 'user')"
    elsewhere.administer(insert, "us")
    with pytest.raises(CatalogError, match="first of another server"):
        create_warehouse(elsewhere.services, elsewhere.wiring, again)
    elsewhere.administer("DELETE FROM warehouse_us.duckicelake_principal WHERE name = 'x'", "us")
    elsewhere.administer("CREATE TABLE warehouse_us.other (x int)", "us")
    create_warehouse(elsewhere.services, elsewhere.wiring, again)
    with pytest.raises(CatalogError, match="has other tables, such as other"):
        drop_warehouse(elsewhere.services, elsewhere.wiring, "us2")
    elsewhere.administer("DROP TABLE warehouse_us.other", "us")
    drop_warehouse(elsewhere.services, elsewhere.wiring, "us2")
    assert elsewhere.administer("SELECT FROM pg_namespace WHERE nspname = 'warehouse_us'", "us") == []


def test_secrets_are_rotated_and_the_login_is_changed(elsewhere: Elsewhere) -> None:
    before = find_warehouse(elsewhere.services, "eu")
    assert rotate_secrets(elsewhere.services, SecretKeys.parse(NEW_KEYS)) >= 1
    rotated = find_warehouse(elsewhere.services, "eu")
    assert rotated.database_secret != before.database_secret
    with pytest.raises(UnavailableError, match="key new"):
        elsewhere.wiring.databases.reveal(rotated)
    rotate_secrets(elsewhere.services, SecretKeys.parse(",".join(reversed(NEW_KEYS.split(",")))))
    elsewhere.administer("CREATE ROLE lake2 LOGIN PASSWORD 'second' IN ROLE lake")
    url = f"postgresql://lake2@127.0.0.1:{elsewhere.cluster.port}/eu"
    elsewhere.command("warehouse", "database", "eu", url, stdin="second\n")
    wait_for(elsewhere.http, f"/v1/eu/{TABLE}", 200, 5)
    wrong = elsewhere.http.post("/management/v1/warehouses/eu/database", json={"database-url": elsewhere.url("us")})
    assert wrong.status_code == 409, wrong.text
    moved = elsewhere.http.post("/management/v1/warehouses/eu/database", json={"database-url": elsewhere.url()})
    assert moved.json()["database-url"] == before.database_url


def test_lake_of_a_restored_registry_is_served_once_it_is_adopted(elsewhere: Elsewhere) -> None:
    elsewhere.administer("UPDATE warehouse_eu.duckicelake_registry SET registry = 'lake of another database'", "eu")
    with elsewhere.services.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES ('new', 'user')")
    wait_for(elsewhere.http, "/v1/eu/namespaces", 503, 15)
    assert "of the server of lake of another database" in elsewhere.http.get("/v1/eu/namespaces").text
    assert "belongs to the server of lake" in elsewhere.command("adopt", "--warehouse", "eu")
    wait_for(elsewhere.http, "/v1/eu/namespaces", 200, 15)


def test_database_that_goes_away_takes_its_warehouse_alone(elsewhere: Elsewhere) -> None:
    create_table(elsewhere.http, "")
    assert elsewhere.http.get(f"/v1/eu/{TABLE}").status_code == 200
    elsewhere.cluster.stop()
    try:
        for _ in range(3):
            answer = elsewhere.http.get("/v1/eu/namespaces")
            assert answer.status_code == 503, answer.text
            begun = time.monotonic()
            assert elsewhere.http.get(f"/v1/{TABLE}").status_code == 200
            assert time.monotonic() - begun < 1
    finally:
        elsewhere.cluster.start()
    wait_for(elsewhere.http, f"/v1/eu/{TABLE}", 200, 30)
