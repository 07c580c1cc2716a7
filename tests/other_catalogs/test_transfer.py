"""Tables and views come from other catalogs, and go to one: real catalogs, and both sides read the same rows."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

import duckicelake
from duckicelake.errors import BadInputError
from duckicelake.other_catalogs.source import KINDS, open_source, parse_options
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import PROGRAM, RunningLake, running_lake
from tests.engines.conftest import new_folder
from tests.support.commands import invoke
from tests.support.waits import wait_until

_numbers = count(1)
ROWS = pa.table({"id": pa.array(range(20), pa.int64()), "region": ["eu", "us"] * 10})


@dataclass
class Sources:
    """A lake that tables come to, an SQL catalog of PyIceberg's, and another server of Iceberg's REST interface."""

    target: RunningLake
    rest: RunningLake
    sql: SqlCatalog
    sql_options: dict[str, str]
    duck: duckdb.DuckDBPyConnection

    def migrate(self, kind: str, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
        """Run the command, and return what became of each object by its name."""
        given = {"jdbc": self.sql_options, "rest": {"uri": self.rest.uri}}[kind]
        options = [part for key, value in given.items() for part in ("--option", f"{key}={value}")]
        ran = invoke("migrate-catalog", "--from", kind, *options, "--uri", self.target.uri, "--json", *arguments)
        assert ran.exit_code == code, ran.output
        return {line["name"]: line for line in map(json.loads, ran.stdout.splitlines())}

    def states(self, kind: str, *arguments: str, code: int = 0) -> dict[str, str]:
        return {name: line["state"] for name, line in self.migrate(kind, *arguments, code=code).items()}

    def ids(self, name: str) -> list[int]:
        return sorted(row[0] for row in self.duck.execute(f"SELECT id FROM lake.{name}").fetchall())


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    with new_folder() as folder:
        allowed = {"DUCKICELAKE_ALLOWED_LOCATIONS": str(folder)}
        with (
            running_lake(folder / "theirs", folder / "theirs.log") as rest,
            running_lake(folder / "lake", folder / "lake.log", allowed) as target,
            duckdb_lake(target) as duck,
        ):
            options = {"uri": f"sqlite:///{folder}/catalog.db", "catalog": "prod", "warehouse": f"file://{folder}/sql"}
            sql = SqlCatalog("prod", uri=options["uri"], warehouse=options["warehouse"])
            yield Sources(target, rest, sql, options, duck)
            sql.engine.dispose()


@pytest.fixture
def namespace() -> str:
    return f"from{next(_numbers)}"


def make_table(catalog: Catalog, name: str) -> None:
    catalog.create_table(name, ROWS.schema).append(ROWS)


@pytest.fixture
def filled(sources: Sources, namespace: str) -> str:
    sources.sql.create_namespace(
        namespace, {"comment": "what they sold", "location": f"{sources.sql_options['warehouse']}/elsewhere"}
    )
    make_table(sources.sql, f"{namespace}.orders")
    sources.sql.load_table(f"{namespace}.orders").delete("id < 5")
    sources.sql.create_namespace((namespace, "eu"))
    make_table(sources.sql, f"{namespace}.eu.stores")
    return namespace


def test_tables_of_an_sql_catalog_come_with_history_and_stay_when_asked_again(sources: Sources, filled: str) -> None:
    orders, stores = f"{filled}.orders", f"{filled}.eu.stores"
    whole = dict.fromkeys((filled, f"{filled}.eu", orders, stores), "created")
    only = ("--namespace", filled)
    would = dict.fromkeys(whole, "would create")
    assert sources.states("jdbc", *only, "--dry-run") == would
    with pyiceberg_catalog(sources.target) as ours:
        assert (filled,) not in ours.list_namespaces()
        counted = sources.migrate("jdbc", *only, "--count-rows")
        assert {name: line["state"] for name, line in counted.items()} == whole
        assert [counted[name]["detail"] for name in (orders, stores)] == ["15 rows", "20 rows"]
        theirs, there = sources.sql.load_table(orders), ours.load_table(orders)
        assert there.metadata.table_uuid == theirs.metadata.table_uuid
        assert [one.snapshot_id for one in there.snapshots()] == [one.snapshot_id for one in theirs.snapshots()]
        assert there.scan(snapshot_id=theirs.snapshots()[0].snapshot_id).to_arrow().num_rows == 20
        assert ours.load_namespace_properties(filled)["comment"] == "what they sold"
        assert "elsewhere" not in ours.load_namespace_properties(filled).get("location", "")
    assert sources.ids(orders) == list(range(5, 20))
    assert sources.states("jdbc", *only) == dict.fromkeys(whole, "there")


def test_changes_that_the_source_made_since_come_with_update(sources: Sources, filled: str) -> None:
    only, orders = ("--namespace", filled), f"{filled}.orders"
    sources.migrate("jdbc", *only)
    sources.sql.load_table(orders).append(ROWS.slice(0, 3))
    behind = sources.migrate("jdbc", *only, code=1)[orders]
    assert (behind["state"], behind["detail"]) == ("behind", "newer snapshots in the source: 1; --update brings them")
    assert sources.states("jdbc", *only, "--update", "--dry-run")[orders] == "would update"
    assert sources.ids(orders) == list(range(5, 20))
    assert sources.states("jdbc", *only, "--update")[orders] == "updated"
    assert sources.ids(orders) == sorted([0, 1, 2, *range(5, 20)])


def test_table_whose_source_forgets_snapshots_at_once_is_behind_and_not_diverged(sources: Sources, filled: str) -> None:
    """Only the history says then that it wasn't written here, and the history comes later than the table."""
    only, orders = ("--namespace", filled), f"{filled}.orders"
    for arguments in ((), ("--update",)):
        sources.migrate("jdbc", *only, *arguments)
        theirs = sources.sql.load_table(orders)
        theirs.append(ROWS.slice(0, 3))
        theirs.maintenance.expire_snapshots().by_ids([one.snapshot_id for one in theirs.snapshots()[:-1]]).commit()
        assert sources.states("jdbc", *only, code=1)[orders] == "behind"


def test_what_was_changed_here_or_has_the_name_is_left_alone(sources: Sources, filled: str) -> None:
    only, orders, stores = ("--namespace", filled), f"{filled}.orders", f"{filled}.eu.stores"
    with duckicelake.connect(sources.target.uri) as lake:
        lake.create_namespace(filled)
        lake.create_namespace(f"{filled}.eu")
        lake.create_table(stores, "id long")
    assert sources.states("jdbc", *only, code=1)[stores] == "taken"
    sources.duck.execute(f"INSERT INTO lake.{orders} VALUES (100, 'x')")
    sources.sql.load_table(orders).append(ROWS.slice(0, 3))
    found = sources.migrate("jdbc", *only, "--update", code=1)
    assert (found[orders]["state"], found[orders]["detail"]) == ("diverged", "snapshots here that the source lacks: 1")
    assert found[stores]["state"] == "taken"
    assert 100 in sources.ids(orders)


def test_one_table_that_cannot_come_keeps_no_other_away(sources: Sources, filled: str) -> None:
    location = sources.sql.load_table(f"{filled}.orders").metadata_location
    Path(unquote(urlsplit(location).path)).unlink()
    found = sources.migrate("jdbc", "--namespace", filled, code=1)
    assert found[f"{filled}.orders"]["state"] == "refused"
    assert location.rpartition("/")[2] in found[f"{filled}.orders"]["detail"]
    assert found[f"{filled}.eu.stores"]["state"] == "created"


def test_views_of_a_rest_catalog_come_with_the_views_that_they_read(sources: Sources, namespace: str) -> None:
    with duckicelake.connect(sources.rest.uri) as theirs, pyiceberg_catalog(sources.rest) as catalog:
        theirs.create_namespace(namespace)
        make_table(catalog, f"{namespace}.orders")
        theirs.create_view(f"{namespace}.b", f"SELECT id FROM {namespace}.orders WHERE id > 10")
        theirs.create_view(f"{namespace}.a", f"SELECT id FROM {namespace}.b WHERE id > 15")
    only = ("--namespace", namespace)
    names = [namespace, *(f"{namespace}.{name}" for name in ("orders", "a", "b"))]
    assert sources.states("rest", *only) == dict.fromkeys(names, "created")
    assert sources.ids(f"{namespace}.a") == [16, 17, 18, 19]
    assert sources.states("rest", *only) == dict.fromkeys(names, "there")
    with duckicelake.connect(sources.target.uri) as ours:
        ours.redefine_view(f"{namespace}.a", f"SELECT id FROM {namespace}.b")
    assert sources.states("rest", *only, code=1)[f"{namespace}.a"] == "taken"


def test_tables_leave_with_all_their_rows_to_another_catalog(sources: Sources, namespace: str) -> None:
    sources.duck.execute(f"CREATE SCHEMA lake.{namespace}")
    sources.duck.execute(f"CREATE TABLE lake.{namespace}.inlined AS SELECT 7::BIGINT AS id")
    with pyiceberg_catalog(sources.target) as ours:
        make_table(ours, f"{namespace}.orders")
    leave = ("unregister", "--uri", sources.target.uri, "--json")
    dry = invoke(*leave, "--namespace", namespace, "--dry-run")
    assert [json.loads(line)["state"] for line in dry.stdout.splitlines()] == ["would give up"] * 2
    with duckicelake.connect(sources.target.uri) as lake:
        lake.create_view(f"{namespace}.v", f"SELECT id FROM {namespace}.orders")
        lake.table(f"{namespace}.inlined").update_properties({"ducklake.protected": "true"})
    held = invoke(*leave, "--namespace", namespace)
    found = {line["name"]: line for line in map(json.loads, held.stdout.splitlines())}
    assert {name: line["state"] for name, line in found.items()} == {
        f"{namespace}.inlined": "refused",
        f"{namespace}.orders": "given up",
        f"{namespace}.v": "there",
    }
    assert held.exit_code == 1
    with duckicelake.connect(sources.target.uri) as lake:
        lake.table(f"{namespace}.inlined").update_properties({}, ["ducklake.protected"])
    last = invoke(*leave, f"{namespace}.inlined")
    last_went = json.loads(last.stdout)
    named = {f"{namespace}.orders": found[f"{namespace}.orders"]["detail"], last_went["name"]: last_went["detail"]}

    def list_earlier() -> dict[str, str]:
        earlier = invoke(*leave, "--namespace", namespace, "--given-up").stdout.splitlines()
        return {line["name"]: line["detail"] for line in map(json.loads, earlier)}

    wait_until(lambda: list_earlier() == named)
    assert invoke(*leave, f"{namespace}.orders", "--given-up").stdout.count("\n") == 1
    found[f"{namespace}.inlined"] = json.loads(last.stdout)
    sources.sql.create_namespace(namespace)
    for name, rows in (("orders", 20), ("inlined", 1)):
        there = sources.sql.register_table(f"{namespace}.{name}", found[f"{namespace}.{name}"]["detail"])
        assert there.scan().to_arrow().num_rows == rows
        there.append(there.scan().to_arrow())
        assert there.scan().count() == 2 * rows


@pytest.mark.parametrize("kind", [*(kind for kind in KINDS if kind != "glue"), "delta"])
def test_a_source_that_lacks_something_says_what(kind: str) -> None:
    with pytest.raises(BadInputError) as raised:
        open_source(kind, {})
    assert str(raised.value).startswith((f"--from {kind} needs --option", "there is no kind of catalog 'delta'"))


def test_options_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("id:hush\n")
    assert parse_options([f"credential=@{tmp_path}/secret", "uri=http://x?a=b"]) == {
        "credential": "id:hush",
        "uri": "http://x?a=b",
    }


def test_wrong_options_are_named_before_a_server_is_asked() -> None:
    ran = invoke("migrate-catalog", "--from", "nope", "--uri", "http://127.0.0.1:1")
    assert (ran.exit_code, "there is no kind of catalog 'nope'" in ran.stderr) == (2, True)


@pytest.mark.crash
def test_a_migration_that_is_killed_goes_on_where_it_was(sources: Sources, namespace: str) -> None:
    sources.sql.create_namespace(namespace)
    tables = {f"{namespace}.t{number:02}" for number in range(25)}
    for name in sorted(tables):
        make_table(sources.sql, name)
    options = [part for key, value in sources.sql_options.items() for part in ("--option", f"{key}={value}")]
    command = ("migrate-catalog", "--from", "jdbc", *options, "--uri", sources.target.uri, "--namespace", namespace)
    first = min(tables)
    with pyiceberg_catalog(sources.target) as ours, Popen([PROGRAM, *command, "--threads", "1"]) as running:
        wait_until(lambda: ours.table_exists(first), 60)
        running.kill()
        running.wait()
    states = sources.states("jdbc", "--namespace", namespace, "--count-rows")
    assert {name for name, state in states.items() if state in {"there", "created"}} == {namespace, *tables}
    assert states[first] == "there"
