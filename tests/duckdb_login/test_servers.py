"""Logins over HTTP and by the command; servers that aren't superusers; warehouses; keys for S3."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from duckicelake.catalog.context.privileges import Privilege, Rights
from duckicelake.catalog.context.services import Services
from duckicelake.cli.main import app
from duckicelake.duckdb_login import service
from duckicelake.duckdb_login.attachment import LoginOptions, open_attachment
from duckicelake.duckdb_login.logins import find_place, list_roles
from duckicelake.duckdb_login.service import DuckdbLoginService, look_after_logins
from duckicelake.errors import ConflictError, InvalidSettingsError, UnsupportedError
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.lake.ducklake.roles import LakeLogins, apply_grants, build_grants
from duckicelake.lake.setup.format import build_session_settings
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.settings.model import Settings
from tests.conftest import new_duckdb, services_of
from tests.server.test_warehouses import site_of
from tests.support.backends import Bucket
from tests.support.duckdb_logins import LoginSite, login_site
from tests.support.s3_lakes import s3_lake
from tests.support.servers import Serve

ROUTE = "/duckdb/v1/logins"
SERVER_PASSWORD = "server's own"


@pytest.fixture
def site(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Iterator[LoginSite]:
    ducklake.execute("CREATE SCHEMA open; CREATE TABLE open.t AS SELECT 1 AS id; INSERT INTO open.t VALUES (2)")
    with login_site(services) as site:
        service._options[services.database] = LoginOptions(site.url, 600)
        yield site
        del service._options[services.database]


def read_rows(statements: list[str]) -> list[tuple[Any, ...]]:
    with new_duckdb() as connection:
        for statement in statements:
            connection.execute(statement)
        return connection.execute("SELECT id FROM lake.open.t ORDER BY 1").fetchall()


def test_login_by_http(site: LoginSite, serve: Serve) -> None:
    http = serve(create_app(site.services))
    made = http.post(ROUTE, json={"namespaces": [["open"]]})
    assert made.status_code == 200, made.text
    assert made.headers["cache-control"] == "no-store"
    answer = made.json()
    assert answer.keys() == {"login", "expires-at", "keys-expire-at", "statements", "uncovered"}
    assert read_rows(answer["statements"]) == [(1,), (2,)]
    assert http.post(ROUTE, json={"namespaces": [["a\x00"]]}).status_code == 400
    assert http.post(ROUTE, json={"namespace": ["open"]}).status_code == 400
    assert http.delete(ROUTE, params={"login": answer["login"]}).status_code == 204
    assert http.delete(ROUTE, params={"login": answer["login"]}).status_code == 404
    with site.services.database.statement() as cursor:
        entries = cursor.execute(
            "SELECT operation, resource, detail FROM duckicelake_audit WHERE result = 'ok' ORDER BY id"
        ).fetchall()
    assert [(operation, resource) for operation, resource, _ in entries] == [
        ("open_duckdb_login", f"duckdb login {answer['login']}"),
        ("close_duckdb_login", f"duckdb login {answer['login']}"),
    ]
    assert "password" not in json.dumps([detail for *_, detail in entries])


def test_connect_prints_what_duckdb_takes(site: LoginSite, serve: Serve) -> None:
    http = serve(create_app(site.services))
    ran = CliRunner().invoke(app, ["connect", "open", "--uri", str(http.base_url)])
    assert ran.exit_code == 0, ran.output
    with new_duckdb() as connection:
        connection.execute(ran.stdout)
        assert connection.execute("SELECT count(*) FROM open.t").fetchall() == [(2,)]
    again = CliRunner().invoke(app, ["connect", "--json", "--uri", str(http.base_url)])
    assert read_rows(json.loads(again.stdout)["statements"]) == [(1,), (2,)]


def test_connect_runs_duckdb_and_ends_the_login(
    site: LoginSite, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a program that is called as DuckDB's command line is."""
    http = serve(create_app(site.services))
    program = tmp_path / "duckdb"
    program.write_text(f'#!/bin/sh\ncp "$2" {tmp_path}/init.sql\nstat -c %a "$2" > {tmp_path}/mode\nexit 3\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    ran = CliRunner().invoke(app, ["connect", "--run", "--uri", str(http.base_url)])
    assert ran.exit_code == 3, ran.output
    assert (tmp_path / "mode").read_text() == "600\n"
    assert (tmp_path / "init.sql").read_text().endswith("(READ_ONLY);\nUSE lake;\n")
    assert list_roles(site.services.database, find_place(site.services)) == []
    monkeypatch.setenv("PATH", "/nowhere")
    ran = CliRunner().invoke(app, ["connect", "--run", "--uri", str(http.base_url)])
    assert ran.exit_code == 3
    assert "install duckdb-cli" in ran.output


def test_server_looks_after_logins(site: LoginSite, ducklake: duckdb.DuckDBPyConnection) -> None:
    """New tables of inlined rows are open after a moment; a login whose time is over ends."""
    failures: list[Exception] = []
    with look_after_logins(site.services, failures.append):
        ours = site.attach(site.open("ns:open:r"))
        short = site.connect(site.open("ns:open:r", seconds=1))
        waited = []
        for number in range(5):
            ducklake.execute(f"ALTER TABLE open.t ADD COLUMN c{number} INTEGER")
            ducklake.execute(f"INSERT INTO open.t (id) VALUES ({number + 10})")
            begun = time.monotonic()
            while True:
                try:
                    assert ours.execute("SELECT count(*) FROM open.t").fetchone() == (3 + number,)
                    break
                except duckdb.Error:
                    assert time.monotonic() < begun + 5
            waited.append(time.monotonic() - begun)
        assert min(waited) < 0.4
        time.sleep(1.5)
        with pytest.raises(psycopg.OperationalError):
            short.execute("SELECT 1")
    assert failures == []


def test_settings_that_cant_be_used() -> None:
    check = DuckdbLoginService().check
    check(Settings())
    with pytest.raises(InvalidSettingsError, match="a Postgres of your own"):
        check(Settings(duckdb_login_url="postgresql://db/lake"))
    own = {"database_url": "postgresql://db/lake", "warehouse": "/warehouse"}
    check(Settings(duckdb_login_url="postgresql://db:5432/lake?sslmode=require", **own))
    with pytest.raises(InvalidSettingsError, match="leave out user and password"):
        check(Settings(duckdb_login_url="postgresql://ann:secret@db/lake", **own))
    with pytest.raises(InvalidSettingsError, match="Invalid DUCKICELAKE_DUCKDB_LOGIN_URL"):
        check(Settings(duckdb_login_url="postgresql://db/lake?nonsense=1", **own))


@pytest.fixture
def plain_server(site: LoginSite, warehouse: Path) -> Iterator[Services]:
    """A server whose role is no superuser: it owns the side tables, another role DuckLake's."""
    name = f"server_{site.services.database.url.rpartition('test_')[2].split()[0]}"
    with site.services.database.statement() as cursor:
        cursor.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(SERVER_PASSWORD))
        )
        cursor.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
                sql.Identifier(cursor.connection.info.dbname), sql.Identifier(name)
            )
        )
    logins = LakeLogins(name, (), (), owner=f"{name}_lake")
    apply_grants(site.services.database.url, build_grants(logins))
    database = open_lake_database(
        make_conninfo(site.url, user=name, password=SERVER_PASSWORD), 4, session_settings=build_session_settings()
    )
    with closing(database):
        yield services_of(database, warehouse)
    site.close()
    with site.services.database.statement() as cursor:
        for role in (f"{name}_lake", name):
            cursor.execute(sql.SQL("REASSIGN OWNED BY {} TO CURRENT_USER").format(sql.Identifier(role)))
            cursor.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
        cursor.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(f"{name}_lake")))


def test_server_without_power_to_make_roles_says_what_it_needs(site: LoginSite, plain_server: Services) -> None:
    with login_site(plain_server) as plain:
        plain.url = site.url
        with pytest.raises(ConflictError, match=r"A superuser of Postgres has to run: ALTER ROLE .* CREATEROLE;$"):
            plain.open("*")
        with site.services.database.statement() as cursor:
            cursor.execute("SELECT current_user")
            ((name,),) = cursor.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'duckicelake_table'")
            cursor.execute(sql.SQL("ALTER ROLE {} CREATEROLE").format(sql.Identifier(name)))
        ours = plain.attach(plain.open("ns:open:r"))
        assert ours.execute("SELECT id FROM open.t ORDER BY 1").fetchall() == [(1,), (2,)]
        writer = new_duckdb()
        writer.execute(build_duckdb_attach(site.services.database.url))
        with look_after_logins(plain.services, lambda error: pytest.fail(str(error))):
            login = plain.open("ns:open:r", seconds=1)
            session = plain.connect(login)
            time.sleep(2)
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")


def test_public_rights_are_named(site: LoginSite) -> None:
    with site.services.database.statement() as cursor:
        cursor.execute("GRANT CREATE ON SCHEMA public TO PUBLIC; GRANT SELECT ON duckicelake_audit TO PUBLIC")
    with pytest.raises(ConflictError) as raised:
        site.open("*")
    assert "REVOKE CREATE ON SCHEMA public FROM PUBLIC; REVOKE ALL ON duckicelake_audit FROM PUBLIC;" in str(
        raised.value
    )


def test_warehouses_have_logins_of_their_own(
    services: Services, tmp_path: Path, serve: Serve, extensions: None
) -> None:
    with login_site(services) as first:
        site = site_of(first.services, tmp_path, serve)
        with closing(site.app.warehouses):
            assert site.http.post("/management/v1/warehouses", json={"name": "north"}).status_code == 200
            for warehouse in ("", "north"):
                site.create_table(warehouse)
            service._options[first.services.database] = LoginOptions(first.url, 600)
            north = site.app.warehouses._open["north"].context.services
            service._options[north.database] = LoginOptions(first.url, 600)
            made = site.http.post("/duckdb/v1/north/logins", json={}).json()
            assert "METADATA_SCHEMA" in made["statements"][-1]
            with new_duckdb() as connection:
                connection.execute(made["statements"][-1])
                assert connection.execute("SELECT count(*) FROM lake.ns.t").fetchone() == (0,)
            given = dict(re.findall(r"\b(user|password)=(\S+?)[ ']", made["statements"][-1]))
            with (
                psycopg.connect(make_conninfo(first.url, **given)) as session,
                pytest.raises(psycopg.errors.InsufficientPrivilege),
            ):
                session.execute("SELECT * FROM public.ducklake_table")


def test_keys_reach_only_the_folders_of_readable_tables(
    postgres: EmbeddedPostgres, bucket: Bucket, extensions: None
) -> None:
    with s3_lake(postgres, bucket) as services, login_site(services) as site:
        owner = new_duckdb()
        owner.execute("INSTALL httpfs; LOAD httpfs")
        options = bucket.options()
        endpoint = bucket.minio.endpoint.removeprefix("http://")
        owner.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{options.access_key_id}', SECRET '{options.secret_access_key}', "
            f"ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false, REGION '{bucket.minio.region}')"
        )
        owner.execute(build_duckdb_attach(services.database.url))
        for name in ("open", "shut"):
            owner.execute(
                f"CREATE SCHEMA lake.{name}; CREATE TABLE lake.{name}.t AS SELECT i AS id FROM range(50) r(i)"
            )
        ((hidden,),) = owner.execute(
            "SELECT data_file FROM ducklake_list_files('lake', 't', schema => 'shut')"
        ).fetchall()
        attachment = site.open("ns:open:r")
        assert attachment.uncovered == ()
        assert attachment.keys_expire_at is not None
        ours = site.attach(attachment)
        assert ours.execute("SELECT count(*), sum(id) FROM open.t").fetchone() == (50, 1225)
        with pytest.raises(duckdb.Error):
            ours.execute(f"FROM read_parquet('{hidden}')").fetchall()
        with pytest.raises(duckdb.Error):
            ours.execute(f"COPY (SELECT 1) TO '{bucket.uri}/lake/ducklake/open/t/x.parquet'")


class NoOutside:
    """A service outside that is never asked."""

    def limit(self, *_: object) -> Privilege:
        raise AssertionError

    def look_ahead(self, *_: object) -> None:
        raise AssertionError


def test_lake_with_outside_decisions_is_refused(site: LoginSite) -> None:
    services = site.as_caller("*")
    principal = services.caller.principal.with_rights(Rights(outside=NoOutside(), are_granted=False))
    services = replace(services, caller=replace(services.caller, principal=principal))
    with pytest.raises(UnsupportedError, match="A service outside decides"):
        open_attachment(services, LoginOptions(site.url, 600), ())
