"""Schemas within schemas, as DuckDB 2.0 makes them in DuckLake 1.1: shown, but nothing is written where files may lie.

No registry has an extension that makes them: DuckDB 1.5 creates schemas at the top, and SQL nests them.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import RESTError

from duckicelake.catalog.clone import CloneRequest
from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.flush import find_waiting_tables, flush_rows
from duckicelake.catalog.maintenance import table_statistics
from duckicelake.catalog.namespaces import (
    create_namespace,
    drop_namespace,
    list_namespaces,
    load_namespace,
    update_namespace,
)
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.catalog.tables import (
    clone_table,
    commit_table,
    create_table,
    drop_table,
    list_tables,
    load_table,
    rename_table,
    table_exists,
)
from duckicelake.catalog.views import create_view, drop_view, list_views, load_view, rename_view
from duckicelake.changelog.doctor import diagnose
from duckicelake.changelog.entries import START_POSITION, read_changes
from duckicelake.changelog.writer import write_all_changes
from duckicelake.errors import AlreadyExistsError, NamespaceNotEmptyError, NoSuchTableError, UnsupportedError
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest, CreateViewRequest, RenameTableRequest
from duckicelake.lake.ducklake.native import read_newest_snapshot
from duckicelake.lake.ducklake.schemas import create_schema
from duckicelake.lake.ducklake.snapshots import begin_snapshot
from duckicelake.lake.side_tables.freshness import read_freshness
from duckicelake.lake.state import FreshnessQuery
from duckicelake.lineage.events.progress import find_named
from duckicelake.postgres.queries import load_queries
from tests.support.ducklake_11 import add_nested_schemas, migrate_by_sql, nest
from tests.support.lakes import Lake
from tests.support.view_requests import creation

ALL = PageRequest()
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "i", "type": "long", "required": False}]}
NESTED = ("sales", "europe")


@pytest.fixture
def tree(lake: Lake, database_url: str) -> Lake:
    """Tables of one name in `sales`, `sales.europe`, `sales.europe.north`, `europe`, and in the dotted `sales.asia`."""
    lake.run(
        *(f'CREATE SCHEMA "{name}"' for name in ("sales", "europe", "north", "eu", "sales.asia")),
        *(
            f'CREATE TABLE "{name}".t AS SELECT {i} + range AS i FROM range(30)'
            for i, name in enumerate(("sales", "europe", "north", "eu", "sales.asia"))
        ),
        "CREATE VIEW eu.v AS SELECT 1 AS one",
        "CREATE TABLE europe.only_here (i BIGINT)",
    )
    with psycopg.connect(database_url) as connection:
        add_nested_schemas(connection)
        nest(connection, "eu", "sales", "europe")
        nest(connection, "north", "sales.europe")
    return lake


def children(services: Services, *parent: str) -> list[tuple[str, ...]]:
    return list(list_namespaces(services, parent, ALL).items)


def rename(source: tuple[str, ...], destination: tuple[str, ...]) -> RenameTableRequest:
    ends = {"source": source, "destination": destination}
    return RenameTableRequest.model_validate(
        {end: {"namespace": names[:-1], "name": names[-1]} for end, names in ends.items()}
    )


def add_schema(lake: Lake, name: str) -> None:
    """Create a schema at the top, where DuckDB 1.5 doesn't load the lake: nested schemas have names of others there."""
    with lake.services.database.transaction() as cursor:
        snapshot = begin_snapshot(cursor, schema_change=True, catalog_ids=1)
        create_schema(cursor, snapshot, name)


def state(lake: Lake) -> object:
    return lake.sql(
        "SELECT (SELECT max(snapshot_id) FROM ducklake_snapshot), (SELECT count(*) FROM ducklake_schema), "
        "(SELECT count(*) FROM ducklake_table), (SELECT count(*) FROM duckicelake_table), "
        "(SELECT count(*) FROM duckicelake_namespace), (SELECT count(*) FROM ducklake_view)"
    )


def test_nested_schemas_are_listed_by_parent_and_shown(tree: Lake) -> None:
    services = tree.services
    assert children(services) == [("europe",), ("main",), ("sales",)]
    assert children(services, "sales") == [("sales", "asia"), ("sales", "europe")]
    assert children(services, "sales", "europe") == [("sales", "europe", "north")]
    assert children(services, "europe") == []
    assert load_namespace(services, NESTED) == {}
    update_namespace(services, NESTED, [], {"owner": "me"})
    assert load_namespace(services, NESTED) == {"owner": "me"}
    assert load_namespace(services, ("europe",)) == {}
    assert list_tables(services, NESTED, ALL).items == ("t",)
    assert list_tables(services, ("europe",), ALL).items == ("only_here", "t")
    assert list_views(services, NESTED, ALL).items == ("v",)


def test_tables_outside_are_read_and_written_as_ever(tree: Lake) -> None:
    for namespace in ("sales", "europe"):
        tree.commit({"action": "set-properties", "updates": {"looked": "at"}}, namespace=namespace)
        append_rows(tree.services, PostedRows((namespace,), "t", b'[{"i": 7}]', "application/json"))
        assert tree.static("t", namespace).scan().to_arrow().num_rows == 31
    load_table(tree.services, ("sales", "asia"), "t")
    with pytest.raises(NoSuchTableError):
        load_table(tree.services, NESTED, "only_here")


REFUSED: dict[str, Callable[[Services], Any]] = {
    "load": lambda s: load_table(s, NESTED, "t"),
    "exists": lambda s: table_exists(s, NESTED, "t"),
    "commit": lambda s: commit_table(s, NESTED, "t", CommitTableRequest(requirements=(), updates=())),
    "rows": lambda s: append_rows(s, PostedRows(NESTED, "t", b'[{"i": 7}]', "application/json")),
    "flush": lambda s: flush_rows(s, NESTED, "t"),
    "drop": lambda s: drop_table(s, NESTED, "t", purge=False),
    "purge": lambda s: drop_table(s, (*NESTED, "north"), "t", purge=True),
    "create": lambda s: create_table(s, NESTED, CreateTableRequest.model_validate({"name": "n", "schema": SCHEMA})),
    "stage": lambda s: create_table(
        s, NESTED, CreateTableRequest.model_validate({"name": "n", "schema": SCHEMA, "stage-create": True})
    ),
    "rename from": lambda s: rename_table(s, rename((*NESTED, "t"), ("europe", "n"))),
    "rename to": lambda s: rename_table(s, rename(("europe", "t"), (*NESTED, "n"))),
    "clone from": lambda s: clone_table(s, ("europe",), "n", CloneRequest((NESTED, "t"))),
    "clone to": lambda s: clone_table(s, NESTED, "n", CloneRequest((("europe",), "t"))),
    "namespace": lambda s: create_namespace(s, (*NESTED, "south"), {}),
    "deep namespace": lambda s: create_namespace(s, (*NESTED, "north", "x", "y"), {}),
    "view": lambda s: create_view(s, NESTED, CreateViewRequest.model_validate(creation("w"))),
    "rename a view": lambda s: rename_view(s, rename((*NESTED, "v"), (*NESTED, "w"))),
}


def test_what_could_misplace_a_file_is_refused_and_writes_nothing(tree: Lake, subtests: pytest.Subtests) -> None:
    for name, act in REFUSED.items():
        with subtests.test(name):
            before = state(tree)
            with pytest.raises(UnsupportedError, match=r"sales\.europe.*MISSING\.md, nested-schemas") as refusal:
                act(tree.services)
            assert refusal.value.feature == "nested-schemas"
            assert state(tree) == before


def test_who_asks_together_with_one_for_a_nested_table_is_answered(tree: Lake) -> None:
    asked = [FreshnessQuery("sales.europe", "t"), FreshnessQuery("europe", "t")]
    with tree.services.database.reading() as cursor:
        nested, plain = read_freshness(cursor, asked)
    assert nested is None
    assert plain is not None


def test_a_virtual_namespace_below_a_nested_schema_gets_no_schema(tree: Lake) -> None:
    add_schema(tree, "sales.europe.x.y")
    assert load_namespace(tree.services, (*NESTED, "x")) == {}
    with pytest.raises(UnsupportedError, match="nested-schemas"):
        update_namespace(tree.services, (*NESTED, "x"), [], {"k": "v"})


def test_maintenance_leaves_them_out(tree: Lake) -> None:
    names = {row.namespace for row in table_statistics(tree.services, ALL).items}
    assert names == {("sales",), ("europe",), ("sales", "asia")}
    assert {table.schema_name for table in find_waiting_tables(tree.services)} <= {".".join(name) for name in names}


def test_views_in_nested_schemas_are_read_and_dropped(tree: Lake) -> None:
    answer = json.loads(load_view(tree.services, NESTED, "v"))
    assert answer["metadata"]["versions"][0]["default-namespace"] == ["sales", "europe"]
    drop_view(tree.services, NESTED, "v")
    assert list_views(tree.services, NESTED, ALL).items == ()


def test_an_empty_nested_schema_can_be_dropped_and_its_parent_only_then(tree: Lake, database_url: str) -> None:
    with pytest.raises(NamespaceNotEmptyError, match=r"namespace sales\.asia, namespace sales\.europe, table t$"):
        drop_namespace(tree.services, ("sales",))
    add_schema(tree, "\x01")
    with psycopg.connect(database_url) as connection:
        nest(connection, "\x01", "europe")
    with pytest.raises(NamespaceNotEmptyError, match="namespace europe\\.\x01, table"):
        drop_namespace(tree.services, ("europe",))

    with pytest.raises(NamespaceNotEmptyError, match="table t"):
        drop_namespace(tree.services, (*NESTED, "north"))
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE ducklake_table SET end_snapshot = (SELECT max(snapshot_id) FROM ducklake_snapshot) "
            "WHERE schema_id = (SELECT schema_id FROM duckicelake_schemas() WHERE schema_name = 'sales.europe.north')"
        )
    drop_namespace(tree.services, (*NESTED, "north"))
    assert children(tree.services, *NESTED) == []
    ((changes,),) = tree.sql("SELECT changes_made FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 1")
    assert changes.startswith("dropped_schema:")


def test_a_namespace_is_made_beside_nested_ones_as_a_schema_at_the_top(tree: Lake) -> None:
    create_namespace(tree.services, ("sales", "africa"), {})
    assert children(tree.services, "sales") == [("sales", "africa"), ("sales", "asia"), ("sales", "europe")]
    with pytest.raises(AlreadyExistsError):
        create_namespace(tree.services, NESTED, {})


def test_grants_are_of_levels(tree: Lake) -> None:
    def caller(*scopes: str) -> Services:
        return replace(tree.services, caller=Caller(Principal("p", build_grants(scopes))))

    below = caller("ns:sales.europe:rw")
    assert children(below) == [("sales",)]
    assert children(below, "sales") == [NESTED]
    assert children(below, *NESTED) == [(*NESTED, "north")]
    assert not caller("ns:europe:rw").caller.principal.sees(NESTED)
    assert not caller("ns:sales%2Eeurope:rw").caller.principal.sees(NESTED)
    assert children(caller("ns:sales%2Eeurope:rw")) == []


@pytest.fixture
def twins(lake: Lake, database_url: str) -> Lake:
    """A schema `a.b` at the top beside `b` in `a`; each has a table `t`."""
    lake.run(
        *(f'CREATE SCHEMA "{name}"' for name in ("a", "a.b", "b")),
        'CREATE TABLE "a.b".t AS SELECT range AS i FROM range(30)',
        "CREATE TABLE b.t AS SELECT range AS i FROM range(5)",
    )
    with psycopg.connect(database_url) as connection:
        add_nested_schemas(connection)
        nest(connection, "b", "a")
    return lake


def test_a_dotted_schema_beside_a_nested_one_of_its_path_is_one_level(twins: Lake) -> None:
    services = twins.services
    assert children(services) == [("a",), ("a.b",), ("main",)]
    assert children(services, "a") == [("a", "b")]
    append_rows(services, PostedRows(("a.b",), "t", b'[{"i": 77}]', "application/json"))
    twins.commit({"action": "set-properties", "updates": {"looked": "at"}}, namespace="a.b")
    assert len(twins.duck.sql('FROM "a.b".t').fetchall()) == 31
    assert twins.static("t", "a.b").scan().to_arrow().num_rows == 31
    with pytest.raises(UnsupportedError):
        load_table(services, ("a", "b"), "t")
    with pytest.raises(AlreadyExistsError):
        create_namespace(services, ("a.b",), {})


def test_what_is_made_in_it_is_recorded_by_ducklakes_name(twins: Lake) -> None:
    """DuckDB finds conflicts by these names."""
    services = twins.services
    create_table(services, ("a.b",), CreateTableRequest.model_validate({"name": "new", "schema": SCHEMA}))
    create_view(services, ("a.b",), CreateViewRequest.model_validate(creation("view")))
    rename_table(services, rename(("a.b", "new"), ("a.b", "newer")))
    rename_view(services, rename(("a.b", "view"), ("a.b", "viewer")))
    made = twins.sql("SELECT changes_made FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC LIMIT 4")
    assert [changes.split(",")[0] for (changes,) in reversed(made)] == [
        'created_table:"a.b"."new"',
        'created_view:"a.b"."view"',
        'created_table:"a.b"."newer"',
        'created_view:"a.b"."viewer"',
    ]
    append_rows(services, PostedRows(("a.b",), "newer", b'[{"i": 1}]', "application/json"))
    assert twins.duck.sql('FROM "a.b".newer').fetchall() == [(1,)]


def test_files_of_nested_schemas_are_never_taken_for_unneeded(tree: Lake) -> None:
    """DuckDB schedules a path for deletion: whichever rule paths follow, a live file of that name stays."""
    ((name,),) = tree.sql(
        "SELECT d.path FROM ducklake_data_file d JOIN ducklake_table t USING (table_id) JOIN duckicelake_schemas() s "
        "USING (schema_id) WHERE s.schema_name = 'sales.europe'"
    )
    folder = tree.services.policy.data_path
    for path in (f"eu/t/{name}", f"sales/eu/t/{name}", f"sales/europe/t/{name}"):
        assert tree.sql("SELECT duckicelake_is_named(duckicelake_canonical_path(%s))", folder + path) == [(True,)]
    assert tree.sql("SELECT duckicelake_is_named(duckicelake_canonical_path(%s))", f"{folder}eu/t/x.parquet") == [
        (False,)
    ]


def test_either_folder_that_may_be_a_nested_tables_is_its_own(tree: Lake) -> None:
    """Whoever may not read the table may not register files of these folders."""
    data_path = tree.services.policy.data_path.rstrip("/")
    folders = [f"{data_path}/{folder}" for folder in ("eu/t", "sales/eu/t", "north/t", "sales/eu/north/t", "x/t")]
    with tree.services.database.reading() as cursor:
        owned = cursor.execute(
            load_queries("lake", "ownership").folders, {"prefixes": folders, "data_path": data_path}
        ).fetchall()
    owners = [["sales.europe", "t"]] * 2 + [["sales.europe.north", "t"]] * 2
    assert sorted(owned) == sorted(zip(folders, owners, strict=False))


def test_lineage_finds_them_by_their_full_names(tree: Lake) -> None:
    with tree.services.database.reading() as cursor:
        newest = read_newest_snapshot(cursor)
        found = [find_named(cursor, schema, "t", newest) for schema in ("europe", "sales.europe", "sales.europe.north")]
    assert len(set(found)) == len(found)
    assert None not in found


def test_doctor_finds_nothing_wrong_with_nested_schemas_and_names_lost_ones(tree: Lake, database_url: str) -> None:
    findings, files = examine_tables(tree.services.database)
    assert [finding for finding in findings if not finding.ok] == []
    assert {file.table for file in files} == {"sales.t", "europe.t", "sales.asia.t"}
    assert all(finding.ok for finding in diagnose(tree.services.database) if finding.name in {"schema", "names"})

    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE ducklake_schema SET end_snapshot = 9 WHERE schema_id = "
            "(SELECT schema_id FROM duckicelake_schemas() WHERE schema_name = 'sales.europe')"
        )
    findings, _ = examine_tables(tree.services.database)
    wrong = [finding.detail for finding in findings if not finding.ok]
    assert any("schema sales.europe.north" in detail and "isn't there" in detail for detail in wrong)


def test_the_changelog_calls_them_by_their_full_names(lake: Lake, database_url: str) -> None:
    lake.run("CREATE SCHEMA a", "CREATE SCHEMA b", "CREATE TABLE b.t (i BIGINT)", "INSERT INTO b.t VALUES (1)")
    lake.run("CREATE VIEW b.v AS SELECT 1 AS one", "ALTER TABLE b.t RENAME TO u", "DROP TABLE b.u", "DROP VIEW b.v")
    with psycopg.connect(database_url) as connection:
        add_nested_schemas(connection)
        nest(connection, "b", "a")
    write_all_changes(lake.services)
    with lake.services.database.reading() as cursor:
        changes = read_changes(cursor, START_POSITION, 1000)
    assert [(change.kind.value, change.resource) for change in changes] == [
        ("create-namespace", "main"),
        ("create-namespace", "a"),
        ("create-namespace", "a.b"),
        ("create-table", "a.b.t"),
        ("append", "a.b.t"),
        ("create-view", "a.b.v"),
        ("rename-table", "a.b.u"),
        ("drop-table", "a.b.u"),
        ("drop-view", "a.b.v"),
    ]


@pytest.mark.parametrize("token", ['"b"."t"', '"a.b"."t"', '"a"."b"."t"'])
def test_the_changelog_reads_whatever_name_ducklake_may_record(lake: Lake, database_url: str, token: str) -> None:
    lake.run("CREATE SCHEMA a", "CREATE SCHEMA b", "CREATE SCHEMA c", "CREATE SCHEMA d", "CREATE TABLE b.t (i BIGINT)")
    with psycopg.connect(database_url) as connection:
        add_nested_schemas(connection)
        nest(connection, "b", "a")
        connection.execute(
            "UPDATE ducklake_snapshot_changes SET changes_made = 'created_table:' || %s "
            "WHERE changes_made LIKE 'created_table%%'",
            [token],
        )
    write_all_changes(lake.services)
    with lake.services.database.reading() as cursor:
        changes = read_changes(cursor, START_POSITION, 1000)
    assert (changes[-1].kind.value, changes[-1].resource) == ("create-table", "a.b.t")
    assert changes[-1].object_id is not None


def test_pyiceberg_lists_levels_and_is_reported_what_is_not_served(tree: Lake, catalog: Catalog) -> None:
    assert sorted(catalog.list_namespaces()) == [("europe",), ("main",), ("sales",)]
    assert sorted(catalog.list_namespaces("sales")) == [("sales", "asia"), ("sales", "europe")]
    assert catalog.list_namespaces(NESTED) == [(*NESTED, "north")]
    assert catalog.list_tables(NESTED) == [(*NESTED, "t")]
    assert catalog.list_views(NESTED) == [(*NESTED, "v")]
    assert catalog.load_table("europe.t").scan().to_arrow().num_rows == 30
    with pytest.raises((RESTError, NotImplementedError), match="nested-schemas"):
        catalog.load_table((*NESTED, "t"))
    with pytest.raises((RESTError, NotImplementedError), match="nested-schemas"):
        catalog.create_namespace((*NESTED, "south"))


def test_a_lake_that_is_migrated_under_a_server_shows_them_at_once(lake: Lake, database_url: str) -> None:
    lake.run("CREATE SCHEMA a", "CREATE SCHEMA b", "CREATE TABLE a.t AS SELECT range AS i FROM range(30)")
    for _ in range(8):  # so often that statements are prepared
        load_table(lake.services, ("a",), "t")
        assert children(lake.services, "a") == []
    with psycopg.connect(database_url) as connection:
        add_nested_schemas(connection)
    assert children(lake.services) == [("a",), ("b",), ("main",)]
    with psycopg.connect(database_url) as connection:
        nest(connection, "b", "a")
    assert children(lake.services) == [("a",), ("main",)]
    assert children(lake.services, "a") == [("a", "b")]
    load_table(lake.services, ("a",), "t")
    with psycopg.connect(database_url) as connection:
        nest(connection, "a.b", None)
    assert children(lake.services) == [("a",), ("b",), ("main",)]


def test_a_lake_of_1_1_shows_them_and_refuses_their_tables(tree: Lake, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        migrate_by_sql(connection)
    assert children(tree.services, "sales") == [("sales", "asia"), ("sales", "europe")]
    assert list_tables(tree.services, NESTED, ALL).items == ("t",)
    append_rows(tree.services, PostedRows(("europe",), "t", b'[{"i": 7}]', "application/json"))
    create_namespace(tree.services, ("sales", "africa"), {})
    with pytest.raises(UnsupportedError, match="nested-schemas"):
        load_table(tree.services, NESTED, "t")
    assert all(finding.ok for finding in diagnose(tree.services.database) if finding.name in {"schema", "names"})
