"""A renamed namespace keeps all that is in it: on both sides, at every snapshot, beside every writer."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import duckdb
import psycopg
import pytest

from duckicelake.catalog import dropped, namespaces, tables, views
from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.dropped import UndropRequest
from duckicelake.catalog.namespace_rename import RenamedNamespace, rename_namespace
from duckicelake.changelog.doctor import diagnose
from duckicelake.changelog.entries import START_POSITION, WantedChanges, read_changes
from duckicelake.changelog.writer import write_all_changes
from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    CommitFailedError,
    ForbiddenError,
    InvalidRequestError,
    NoSuchNamespaceError,
    NoSuchTableError,
    UnsupportedError,
)
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest, CreateViewRequest
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.properties import PROTECTED
from tests.conftest import services_of
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Draft,
    Json,
    append,
    assert_whole,
    duckdb_rows,
    pyiceberg_rows,
    set_ref,
)
from tests.support.ducklake_11 import add_nested_schemas, nest
from tests.support.lakes import Lake
from tests.support.view_requests import create as create_view
from tests.support.view_requests import schema as view_schema
from tests.support.view_requests import version

Attach = Callable[..., duckdb.DuckDBPyConnection]
NEW = ("archive", "ns")
EVERYTHING = PageRequest()


def rename(services: Services, source: str = "ns", destination: str = "archive.ns") -> RenamedNamespace:
    return rename_namespace(services, tuple(source.split(".")), tuple(destination.split(".")))


def load(services: Services, name: str = "t", namespace: tuple[str, ...] = NEW) -> Json:
    answer: Json = json.loads(tables.load_table(services, namespace, name).body)
    return answer


def one(duck: duckdb.DuckDBPyConnection, query: str) -> object:
    (row,) = duck.execute(query).fetchall()
    return row[0]


def newest(duck: duckdb.DuckDBPyConnection) -> int:
    return int(str(one(duck, "SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")))


def assert_healthy(services: Services) -> None:
    """`duckicelake doctor` finds nothing."""
    assert [finding for finding in diagnose(services.database) if not finding.ok and finding.name != "changelog"] == []
    assert examine_tables(services.database)[0] == []


def test_tables_keep_their_history_under_both_names(services: Services, client: Client, attach: Attach) -> None:
    cached, fresh = attach(), attach
    client.create()
    client.append((1, "a"), (2, "b"))
    cached.execute("INSERT INTO ns.t VALUES (3, 'c')")
    draft = Draft(client.metadata(), branch="work")
    client.commit(draft.body([draft.manifest([draft.data_file([(9, "z")])]), *draft.parent_manifests]))
    head = client.metadata()["current-snapshot-id"]
    client.commit({"requirements": [], "updates": [set_ref("kept", head, "tag")]})
    cached.execute("DELETE FROM ns.t WHERE id = 1")
    cached.execute("CREATE TABLE ns.native (i INT); INSERT INTO ns.native SELECT * FROM range(30)")
    before, last = client.load(), newest(cached)
    at = {version: duckdb_rows_at(cached, "ns.t", version) for version in range(4, last + 1)}
    done = rename(services)
    assert (done.namespaces, done.tables, done.views, done.stale_views) == (1, 2, 0, ())
    after = load(services)
    for member in ("table-uuid", "location", "snapshots", "refs", "schemas", "metadata-log", "properties"):
        assert after["metadata"][member] == before["metadata"][member], member
    for duck in (cached, fresh()):
        assert duckdb_rows_at(duck, '"archive.ns".t') == at[last] == [(2, "b"), (3, "c")]
        assert {version: duckdb_rows_at(duck, "ns.t", version) for version in at} == at
        assert one(duck, f"SELECT count(*) FROM ns.native AT (VERSION => {last})") == 30
        for gone in ("ns.t", f'"archive.ns".t AT (VERSION => {last})'):
            with pytest.raises(duckdb.Error, match="does not exist"):
                duck.execute(f"FROM {gone}")
    assert pyiceberg_rows(after) == [(2, "b"), (3, "c")]
    assert load(services, "native")["metadata"]["location"]
    request = CommitTableRequest.model_validate(append(after["metadata"], (4, "d")))
    tables.commit_table(services, NEW, "t", request)
    cached.execute("""INSERT INTO "archive.ns".t VALUES (5, 'e')""")
    assert pyiceberg_rows(load(services)) == duckdb_rows_at(fresh(), '"archive.ns".t')
    assert_whole(load(services))
    assert_healthy(services)


def duckdb_rows_at(duck: duckdb.DuckDBPyConnection, name: str, version: int | None = None) -> list[tuple[object, ...]]:
    at = "" if version is None else f" AT (VERSION => {version})"
    return duck.execute(f"FROM lake.{name}{at} ORDER BY ALL").fetchall()


def test_all_that_is_in_it_and_below_it_moves(services: Services, client: Client, attach: Attach) -> None:
    duck = attach()
    namespaces.update_namespace(services, NS, [], {"owner": "ann", PROTECTED: "true"})
    duck.execute('CREATE SCHEMA "ns.below.deep"; CREATE TABLE "ns.below.deep".t AS SELECT 1 AS i')
    duck.execute('CREATE SCHEMA "nsx"')
    duck.execute("CREATE TABLE ns.t AS SELECT 1 AS i; COMMENT ON TABLE ns.t IS 'kept'")
    duck.execute("CREATE VIEW ns.v AS SELECT 7 AS i; COMMENT ON VIEW ns.v IS 'kept, too'")
    duck.execute("CREATE MACRO ns.add(a) AS a + 1; CREATE MACRO ns.tab(a) AS TABLE SELECT a AS b")
    duck.execute("CALL lake.set_option('parquet_compression', 'zstd', schema => 'ns')")
    assert rename(services).namespaces == 2
    found = [
        row[0]
        for row in duck.execute("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake'").fetchall()
    ]
    assert sorted(found) == ["archive.ns", "archive.ns.below.deep", "main", "nsx"]
    assert list(namespaces.list_namespaces(services, NEW, EVERYTHING).items) == [(*NEW, "below")]
    assert namespaces.load_namespace(services, NEW) == {"owner": "ann", PROTECTED: "true"}
    assert one(duck, 'SELECT "archive.ns".add(2) + (FROM "archive.ns".tab(3)) + (FROM "archive.ns".v)') == 13
    assert one(duck, 'FROM "archive.ns.below.deep".t') == 1
    assert (
        one(duck, "SELECT comment FROM duckdb_tables() WHERE table_name = 't' AND schema_name = 'archive.ns'") == "kept"
    )
    assert one(duck, "SELECT comment FROM duckdb_views() WHERE view_name = 'v'") == "kept, too"
    assert one(duck, "SELECT scope_entry FROM ducklake_options('lake') WHERE scope = 'SCHEMA'") == "archive.ns"
    assert views.load_view(services, NEW, "v")
    assert_healthy(services)
    with pytest.raises(NoSuchNamespaceError):
        namespaces.load_namespace(services, NS)
    rename(services, "archive.ns.below", "ns.again.below")
    rename(services, "archive", "x")
    rename(services, "x.ns", "x")
    assert one(duck, 'SELECT (FROM "ns.again.below.deep".t) + (FROM x.v)') == 8
    assert_healthy(services)


def test_inlined_rows_are_read_after_older_snapshots_expired(
    services: Services, client: Client, attach: Attach
) -> None:
    """DuckDB reads them with the tables of the snapshot at which their columns began."""
    duck = attach()
    duck.execute("CREATE TABLE ns.t AS SELECT 1::BIGINT AS id, 'a' AS name; CREATE VIEW ns.v AS SELECT 1 AS i")
    duck.execute("CREATE MACRO ns.m(a) AS a; CREATE TABLE main.u (i INT)")
    rename(services)
    for _ in range(2):
        duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
        duck.execute("""INSERT INTO "archive.ns".t VALUES (2, 'b')""")
    for reader in (duck, attach()):
        assert [row[0] for row in duckdb_rows_at(reader, '"archive.ns".t')] == [1, 2, 2]
    assert len(pyiceberg_rows(load(services))) == 3
    duck.execute('DROP SCHEMA "archive.ns" CASCADE')
    for _ in range(2):
        duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    assert Lake(services, duck).sql("SELECT schema_name FROM ducklake_schema") == [("main",)]


def test_old_name_is_free_for_another_with_a_folder_of_its_own(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE ns.t AS SELECT 1::BIGINT AS id, 'old' AS name")
    rename(services)
    namespaces.create_namespace(services, NS, {})
    ducklake.execute("CREATE TABLE ns.t AS SELECT range AS id, 'new' AS name FROM range(30)")
    client.append((100, "newer"))
    folders = ducklake.execute("SELECT path FROM __ducklake_metadata_lake.ducklake_schema WHERE end_snapshot IS NULL")
    assert len(set(folders.fetchall())) == 3
    assert len(duckdb_rows(ducklake)) == 31
    assert duckdb_rows_at(ducklake, '"archive.ns".t') == pyiceberg_rows(load(services)) == [(1, "old")]
    with pytest.raises(AlreadyExistsError):
        rename(services)
    assert_healthy(services)


REFUSED = {
    "INSERT INTO ns.t VALUES (5)",
    "INSERT INTO ns.t SELECT * FROM range(100)",
    "DELETE FROM ns.t WHERE i = 3",
    "UPDATE ns.t SET i = 9 WHERE i = 3",
    "DELETE FROM ns.t",
    "CREATE TABLE ns.u AS SELECT 1 AS a",
    "CREATE TABLE ns.u (a INT)",
    "CREATE OR REPLACE TABLE ns.t AS SELECT 1 AS a",
    "CREATE VIEW ns.x AS SELECT 1 AS a",
    "CREATE OR REPLACE VIEW ns.v AS SELECT 2 AS a",
    "ALTER VIEW ns.v RENAME TO z",
    "COMMENT ON VIEW ns.v IS 'x'",
    "CREATE MACRO ns.m(a) AS a",
    "CREATE OR REPLACE MACRO ns.add(a) AS a + 5",
    "DROP SCHEMA ns CASCADE",
    "ALTER TABLE ns.t ADD COLUMN b INT",
    "ALTER TABLE ns.t RENAME TO q",
    "ALTER TABLE ns.t SET PARTITIONED BY (i)",
    "COMMENT ON TABLE ns.t IS 'x'",
    'CREATE SCHEMA "archive.ns"',
}
ACCEPTED = {
    "DROP VIEW ns.v",
    "DROP MACRO ns.add",
    "DROP TABLE ns.t",
    "CREATE SCHEMA other",
    "INSERT INTO main.t VALUES (1)",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
}
HOMELESS = """
    SELECT count(*) FROM (
        SELECT schema_id FROM ducklake_table WHERE end_snapshot IS NULL
        UNION ALL SELECT schema_id FROM ducklake_view WHERE end_snapshot IS NULL
        UNION ALL SELECT schema_id FROM ducklake_macro WHERE end_snapshot IS NULL
    ) live JOIN ducklake_schema USING (schema_id) WHERE end_snapshot IS NOT NULL
"""


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param(statement, marks=pytest.mark.model if number % 3 else ())
        for number, statement in enumerate(sorted(REFUSED | ACCEPTED))
    ],
)
def test_duckdb_transaction_that_began_before_is_whole_or_refused(
    services: Services, client: Client, attach: Attach, statement: str
) -> None:
    duck = attach()
    duck.execute("CREATE TABLE main.t (i INT); CREATE TABLE ns.t AS SELECT range AS i FROM range(20)")
    duck.execute("INSERT INTO ns.t SELECT * FROM range(20); INSERT INTO ns.t VALUES (100)")
    duck.execute("CREATE VIEW ns.v AS SELECT 1 AS one; CREATE MACRO ns.add(a) AS a + 1")
    duck.execute("BEGIN")
    duck.execute(statement).fetchall()
    rename(services)
    if statement in REFUSED:
        with pytest.raises(duckdb.Error, match=r"conflict|does not exist|dropped"):
            duck.execute("COMMIT")
    else:
        duck.execute("COMMIT")
    assert Lake(services, duck).sql(HOMELESS) == [(0,)]
    assert_healthy(services)
    if statement != "DROP TABLE ns.t":
        assert one(attach(), 'SELECT count(*) FROM "archive.ns".t') == 41
        assert load(services)["metadata"]["location"]


@pytest.mark.parametrize("statement", ["INSERT INTO ns.t VALUES (5, 'x')", "CREATE TABLE ns.u (a INT)"])
def test_duckdb_transaction_that_commits_first_moves_along(
    services: Services, client: Client, attach: Attach, statement: str
) -> None:
    client.create()
    client.append((1, "a"))
    duck = attach()
    duck.execute("BEGIN")
    duck.execute(statement)
    duck.execute("COMMIT")
    assert rename(services).tables == (2 if "CREATE" in statement else 1)
    assert len(pyiceberg_rows(load(services))) == (1 if "CREATE" in statement else 2)


def test_clients_with_the_old_name_get_errors_and_lose_nothing(
    services: Services, client: Client, database_url: str, warehouse: Path
) -> None:
    client.create()
    client.append((1, "a"))
    with closing(open_lake_database(database_url, 4)) as database:
        other = Client(services_of(database, warehouse))  # another worker, whose caches know the old name
        stale = append(other.metadata(), (2, "b"))
        rename(services)
        with pytest.raises(NoSuchTableError, match=r"ns.t"):
            other.load()
        with pytest.raises(NoSuchTableError, match=r"ns.t"):
            other.commit(stale)
        with pytest.raises(NoSuchNamespaceError):
            other.create("u")
        tables.commit_table(other.services, NEW, "t", CommitTableRequest.model_validate(stale))
        assert pyiceberg_rows(load(services)) == pyiceberg_rows(load(other.services)) == [(1, "a"), (2, "b")]


def test_commits_and_creations_beside_renames_are_whole(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str, warehouse: Path
) -> None:
    """Writers go to whichever name there is; every commit that was answered is there, in the namespace that is."""
    client.create()
    places, rounds = (NS, NEW), 12

    def anywhere(act: Callable[[tuple[str, ...]], object]) -> None:
        while True:
            for place in places:
                with suppress(NoSuchTableError, NoSuchNamespaceError, CommitFailedError):
                    act(place)
                    return

    def write(number: int, writer: Services) -> None:
        for turn in range(rounds):
            row = (number * 100 + turn, "x")

            def commit(place: tuple[str, ...], row: tuple[int, str] = row) -> None:
                body = append(load(writer, namespace=place)["metadata"], row)
                tables.commit_table(writer, place, "t", CommitTableRequest.model_validate(body))

            anywhere(commit)
            if turn % 4 == 0:
                request = CreateTableRequest.model_validate({"name": f"t{row[0]}", "schema": SCHEMA})

                def create(place: tuple[str, ...], request: CreateTableRequest = request) -> None:
                    tables.create_table(writer, place, request)

                anywhere(create)

    def move() -> None:
        for turn in range(rounds):
            rename_namespace(services, places[turn % 2], places[1 - turn % 2])

    with closing(open_lake_database(database_url, 4)) as database, ThreadPoolExecutor(4) as threads:
        other = services_of(database, warehouse)
        for work in [threads.submit(write, number, (services, other)[number % 2]) for number in range(3)] + [
            threads.submit(move)
        ]:
            work.result()
    rows = [number * 100 + turn for number in range(3) for turn in range(rounds)]
    assert [row[0] for row in pyiceberg_rows(client.load())] == [row[0] for row in duckdb_rows(ducklake)] == rows
    names = tables.list_tables(services, NS, EVERYTHING).items
    assert {name.name if hasattr(name, "name") else name for name in names} == {
        "t",
        *(f"t{row}" for row in rows if row % 4 == 0 and row % 100 < rounds),
    }
    assert Lake(services, ducklake).sql(HOMELESS) == [(0,)]
    assert_healthy(services)


@pytest.mark.parametrize(
    ("source", "destination", "error", "problem"),
    [
        ("never", "x", NoSuchNamespaceError, "Namespace does not exist: never"),
        ("ns", "ns", AlreadyExistsError, "it has this name"),
        ("ns", "ns.below", InvalidRequestError, "it can't move into itself"),
        ("ns", "taken", AlreadyExistsError, "Namespace already exists: taken"),
        ("ns", "virtual", AlreadyExistsError, "Cannot rename namespace ns to virtual. Namespace already exists"),
        ("ns", "TAKEN", InvalidRequestError, "differs only by case from taken"),
        ("ns", "Virtual.x", InvalidRequestError, "differs only by case"),
        ("main", "x", InvalidRequestError, "main can't be renamed"),
        ("ns", "main", AlreadyExistsError, "Namespace already exists: main"),
        ("ns", "a..b", InvalidRequestError, "empty"),
        ("ns", "a\x01b", InvalidRequestError, "control"),
        ("virtual", "x" * 1990, InvalidRequestError, "2000 at most"),
    ],
)
def test_what_cannot_be_leaves_all_as_it_was(
    services: Services,
    client: Client,
    ducklake: duckdb.DuckDBPyConnection,
    source: str,
    destination: str,
    error: type[CatalogError],
    problem: str,
) -> None:
    ducklake.execute('CREATE SCHEMA taken; CREATE SCHEMA "virtual.child.with_long_name"')
    before = newest(ducklake)
    with pytest.raises(error, match=problem):
        rename(services, source, destination)
    assert newest(ducklake) == before


def test_name_may_change_its_case_or_go_up(services: Services, client: Client, attach: Attach) -> None:
    client.create()
    client.append((1, "a"))
    rename(services, "ns", "NS")
    assert one(attach(), "SELECT count(*) FROM ns.t") == 1
    rename(services, "NS", "deep.below.ns")
    rename(services, "deep.below", "deep")
    assert pyiceberg_rows(load(services, namespace=("deep", "ns"))) == [(1, "a")]
    rename(services, "deep.ns", "deep")
    assert pyiceberg_rows(load(services, namespace=("deep",))) == [(1, "a")]


def test_who_may_manage_only_one_end_is_refused(services: Services, client: Client) -> None:
    def caller(*scopes: str) -> Services:
        return replace(services, caller=replace(Caller(), principal=Principal("p", build_grants(scopes))))

    with pytest.raises(ForbiddenError):
        rename(caller("ns:ns:*"))
    rename(caller("ns:ns:*", "ns:archive:*"))


def test_views_that_name_it_are_listed_and_keep_their_text(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    ducklake.execute("CREATE VIEW ns.own AS SELECT id FROM ns.t")
    ducklake.execute("CREATE VIEW main.far AS SELECT count(*) AS n FROM lake.ns.t JOIN lake.ns.own USING (id)")
    ducklake.execute("CREATE VIEW main.none AS SELECT 'FROM ns.t' AS ns")
    create_view(services, "spark", {"spark": "SELECT id, city FROM `ns`.`t`"})
    plain = version({"spark": "SELECT id, city FROM t"}, default_namespace=["ns"])
    request = CreateViewRequest.model_validate({"name": "default", "schema": view_schema(), "view-version": plain})
    views.create_view(services, ("main",), request)
    create_view(services, "other", {"spark": "SELECT id, city FROM other.ns"})
    done = rename(services)
    assert done.stale_views == (("archive.ns", "own"), ("main", "default"), ("main", "far"), ("main", "spark"))
    text = json.loads(views.load_view(services, ("main",), "spark"))["metadata"]["versions"][-1]["representations"]
    assert text[0]["sql"] == "SELECT id, city FROM `ns`.`t`"
    rename(services, "archive.ns", "ns")
    assert one(ducklake, "FROM main.far") == 0


@pytest.fixture
def kept(services: Services) -> None:
    with services.database.transaction() as cursor:
        set_retention(cursor, 3600)


def list_dropped(services: Services) -> list[tuple[str, str, str | None]]:
    found = dropped.list_dropped(services, None, EVERYTHING).items
    return sorted((item.kind, item.schema_name, item.name or "") for item in found)


def test_what_was_dropped_in_it_comes_back_under_the_new_name(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, kept: None
) -> None:
    ducklake.execute('CREATE SCHEMA "ns.below"; CREATE TABLE "ns.below".b AS SELECT 4 AS i; CREATE SCHEMA "ns.gone"')
    ducklake.execute('CREATE VIEW ns.v AS SELECT 3 AS i; CREATE TABLE "ns.gone".g AS SELECT 5 AS i')
    client.create()
    client.append((1, "a"))
    tables.drop_table(services, NS, "t", purge=True)
    ducklake.execute('DROP VIEW ns.v; DROP TABLE "ns.below".b; DROP SCHEMA "ns.gone" CASCADE')
    rename(services)
    rename(services, "archive.ns", "later")
    assert list_dropped(services) == [
        ("namespace", "later.gone", ""),
        ("table", "later", "t"),
        ("table", "later.below", "b"),
        ("table", "later.gone", "g"),
        ("view", "later", "v"),
    ]
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    ducklake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    dropped.undrop(services, UndropRequest("namespace", ("later", "gone")))
    dropped.undrop(services, UndropRequest("table", ("later",), "t"))
    dropped.undrop(services, UndropRequest("table", ("later", "below"), "b"))
    dropped.undrop(services, UndropRequest("view", ("later",), "v"))
    assert pyiceberg_rows(load(services, namespace=("later",))) == [(1, "a")]
    found = 'SELECT (FROM "later.below".b) + (FROM later.v) + (FROM "later.gone".g) + (SELECT id FROM later.t)'
    assert one(ducklake, found) == 13
    assert list_dropped(services) == []
    assert_healthy(services)


def test_dropped_namespace_of_the_same_name_stays_apart(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, kept: None
) -> None:
    ducklake.execute("CREATE TABLE ns.t AS SELECT 1 AS i; DROP SCHEMA ns CASCADE; CREATE SCHEMA ns")
    ducklake.execute("CREATE TABLE ns.t AS SELECT 2 AS i")
    rename(services)
    assert list_dropped(services) == [("namespace", "ns", ""), ("table", "ns", "t")]
    dropped.undrop(services, UndropRequest("namespace", NS))
    assert one(ducklake, 'SELECT (FROM ns.t) + 10 * (FROM "archive.ns".t)') == 21


def test_clone_and_its_source_go_on_sharing(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    namespaces.create_namespace(services, ("copies",), {})
    clone_table(services, ("copies",), "c", CloneRequest((NS, "t"), None, False))
    rename(services)
    rename(services, "copies", "kept")
    tables.drop_table(services, NEW, "t", purge=True)
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    ducklake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert pyiceberg_rows(load(services, "c", ("kept",))) == duckdb_rows_at(ducklake, "kept.c") == [(1, "a")]


def test_changelog_says_what_each_was_called(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    create_view(services, "v", {"duckdb": "SELECT 1::BIGINT AS id, 'x' AS city"}, namespace="ns")
    namespaces.create_namespace(services, ("ns", "below"), {})
    at = rename(services).snapshot_id
    write_all_changes(services)
    with services.database.reading() as cursor:
        found = read_changes(cursor, START_POSITION, 1_000, WantedChanges())
    moved = [(change.kind.value, change.previous, change.resource) for change in found if change.snapshot_id == at]
    assert moved == [
        ("rename-namespace", "ns", "archive.ns"),
        ("rename-namespace", "ns.below", "archive.ns.below"),
        ("rename-table", "ns.t", "archive.ns.t"),
        ("rename-view", "ns.v", "archive.ns.v"),
    ]
    assert {change.operation for change in found if change.snapshot_id == at} == {""}


def test_schema_within_another_is_refused(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str
) -> None:
    lake = Lake(services, ducklake)
    ducklake.execute("CREATE SCHEMA sales; CREATE SCHEMA europe")
    with psycopg.connect(database_url) as connection:
        add_nested_schemas(connection)
        nest(connection, "europe", "sales")
    for source, destination in (("sales", "x"), ("sales.europe", "europe"), ("ns", "sales.europe.ns")):
        with pytest.raises(UnsupportedError):
            rename(services, source, destination)
    assert lake.sql("SELECT count(*) FROM ducklake_schema WHERE end_snapshot IS NOT NULL") == [(0,)]
