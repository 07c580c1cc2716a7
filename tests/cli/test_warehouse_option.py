"""Commands that open a lake work on another warehouse by --warehouse, as on the first one."""

import json
import shlex
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer
from typer.testing import CliRunner

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse_registry import rename_warehouse
from duckicelake.cli.main import app
from tests.cli.test_help import commands
from tests.conftest import new_duckdb
from tests.server.test_warehouses import Site, site_of
from tests.support.servers import Serve

ON_THE_FIRST_ALONE = {"config", "init", "serve", "import-lake", "grants", "rotate-secrets", "export", "apply", "work"}
"""Commands with --lake that work on the server's own lake, or on all; groups by their first word."""
GROUPS_ON_THE_FIRST = {"warehouse", "storage-profile", "principal", "group", "role", "issuer"}
Run = Callable[..., Any]


def test_each_command_on_a_lake_names_a_warehouse() -> None:
    root: Any = typer.main.get_command(app)
    for words in commands(root):
        command: Any = root
        for word in words:
            command = command.get_command(None, word)
        options = {option for param in command.params for option in param.opts}
        is_of_first = words[0] in GROUPS_ON_THE_FIRST or " ".join(words) in ON_THE_FIRST_ALONE
        if "--lake" in options or words[0] == "pipeline":
            assert ("--warehouse" in options) == (not is_of_first), words


@pytest.fixture
def site(services: Services, tmp_path: Path, serve: Serve) -> Any:
    site = site_of(services, tmp_path, serve)
    with closing(site.app.warehouses):
        yield site


@pytest.fixture
def run(services: Services, tmp_path: Path) -> Run:
    """Run a command line on the lake of the services, whose warehouses are below the folder `warehouses`."""
    environment = {
        "DUCKICELAKE_DATABASE_URL": services.database.url,
        "DUCKICELAKE_WAREHOUSE": services.policy.warehouse,
        "DUCKICELAKE_WAREHOUSE_ROOTS": f"{tmp_path}/warehouses",
        "COLUMNS": "200",
    }

    def run(line: str, status: int = 0) -> str:
        report = CliRunner().invoke(app, shlex.split(line), env=environment)
        assert report.exit_code == status, report.output
        return report.output

    return run


@pytest.fixture
def north(site: Site, run: Run) -> Site:
    run("warehouse create north")
    site.create_table("")
    site.create_table("north")
    assert site.post_rows("north", *({"id": number, "name": "n"} for number in range(7))).status_code == 200
    return site


def test_commands_read_and_change_the_named_warehouse_alone(north: Site, run: Run, tmp_path: Path) -> None:
    first = north.http.get("/v1/namespaces/ns/tables/t").json()["metadata"]
    assert "7" in run("flush ns.t --warehouse north")
    assert "replace" in run("history ns.t --warehouse north")
    assert "append_rows" in run("audit --warehouse north")
    assert "append_rows" not in run("audit")
    assert f"{tmp_path}/warehouses/north is this lake's" in run("doctor --warehouse north")
    assert "nothing to delete" in run("gc --warehouse north --older-than 2h")
    run("clone ns.t ns.copy --warehouse north")
    assert sorted(north.names("north")) == ["copy", "t"]
    assert north.names("") == ["t"]
    run("constraints ns.t --warehouse north")
    assert "ns.t" in run("explain ns.t --warehouse north")
    assert north.http.delete("/v1/north/namespaces/ns/tables/copy").status_code == 204
    assert "copy" in run("dropped --warehouse north")
    assert "copy" not in run("dropped")
    run("undrop ns.copy --warehouse north")
    assert sorted(north.names("north")) == ["copy", "t"]
    run("delta status --warehouse north")
    run("lineage deliveries --warehouse north")
    assert north.http.get("/v1/namespaces/ns/tables/t").json()["metadata"] == first


def test_info_prints_what_duckdb_attaches(north: Site, run: Run, extensions: None) -> None:
    rename_warehouse(north.services, "north", "far-north")
    facts = json.loads(run("info --json --warehouse far-north"))
    assert facts["metadata-schema"] == "warehouse_north"
    assert facts["prefix"] == "far-north"
    with new_duckdb() as duckdb:
        duckdb.execute(facts["duckdb-attach"])
        assert duckdb.sql('SELECT count(*) FROM "far-north".ns.t').fetchall() == [(7,)]
    assert "metadata-schema" not in json.loads(run("info --json"))


def test_wrong_warehouse_is_one_line(site: Site, run: Run) -> None:
    assert "No such warehouse: west" in run("gc --warehouse west", 2)
    assert "No such warehouse: west" in run("info --warehouse west", 2)
    assert run("dropped --warehouse duckicelake") == run("dropped")
    run("warehouse create west")
    with psycopg.connect(site.services.database.url) as connection:
        connection.execute("UPDATE duckicelake_warehouse SET state = 'dropping'")
    assert "in state dropping" in run("dropped --warehouse west", 2)
