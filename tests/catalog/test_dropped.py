"""What was dropped by either side comes back with its rows and history, until the lake's time for it is over."""

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from duckicelake.catalog import dropped, namespaces, tables, views
from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.commit.guards import lift_guards
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.dropped import Undropped, UndropRequest
from duckicelake.catalog.registration import unregister_table
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotFoundError,
    ProtectedError,
)
from duckicelake.iceberg.rest import RegisterTableRequest
from duckicelake.lake.ducklake.dropped import DroppedKind, DroppedObject, set_retention
from duckicelake.properties import PROTECTED
from tests.support.client import (
    NS,
    Client,
    Draft,
    assert_whole,
    data_files,
    duckdb_rows,
    local,
    pyiceberg_rows,
    set_properties,
)
from tests.support.view_requests import commit as commit_view
from tests.support.view_requests import create as create_view
from tests.support.view_requests import set_properties as set_view_properties

Attach = Callable[..., duckdb.DuckDBPyConnection]
WEEK = 7 * 86_400
EVERYTHING = PageRequest()


@pytest.fixture(autouse=True)
def kept(services: Services) -> None:
    keep(services, WEEK)


def keep(services: Services, seconds: float) -> None:
    with services.database.transaction() as cursor:
        set_retention(cursor, seconds)


def listed(services: Services) -> list[DroppedObject]:
    return list(dropped.list_dropped(services, None, EVERYTHING).items)


def undrop(services: Services, name: str | None = "t", kind: DroppedKind = "table", **more: Any) -> Undropped:
    return dropped.undrop(services, UndropRequest(kind, NS, name, **more))


def expire_all(duck: duckdb.DuckDBPyConnection) -> None:
    """All that DuckDB can delete."""
    duck.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    duck.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    duck.execute("CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)")


def end_time(services: Services) -> None:
    """Let the time be over of all that was dropped."""
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_dropped SET kept_until = clock_timestamp()")
    while dropped.let_go(services):
        pass


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize("is_expired", [False, True])
def test_table_dropped_by_a_client_comes_back_with_its_history(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, purge: bool, is_expired: bool
) -> None:
    client.create()
    client.append((1, "a"), (2, "b"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'c')")
    client.load()
    client.append((4, "d"))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    before = client.load()
    tables.drop_table(services, NS, "t", purge)
    if is_expired:
        expire_all(ducklake)
    assert_healthy(services)
    (found,) = listed(services)
    assert (found.kind, found.schema_name, found.name, found.is_purged) == ("table", "ns", "t", purge)
    assert found.uuid == before["metadata"]["table-uuid"]
    done = undrop(services)
    assert (done.namespace, done.name, listed(services)) == ("ns", "t", [])
    after = client.load()
    listed_before = [snapshot["snapshot-id"] for snapshot in before["metadata"]["snapshots"]]
    listed_after = [snapshot["snapshot-id"] for snapshot in after["metadata"]["snapshots"]]
    assert listed_after == (listed_before[-1:] if is_expired else listed_before)
    for member in ("table-uuid", "location", "current-snapshot-id", "schemas", "refs"):
        assert after["metadata"][member] == before["metadata"][member]
    assert_both_read(client, ducklake, [(2, "b"), (3, "c"), (4, "d")])
    client.append((5, "e"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (6, 'f')")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 2")
    assert_both_read(client, ducklake, [(3, "c"), (4, "d"), (5, "e"), (6, "f")])
    assert_whole(client.load())
    assert_healthy(services)


def assert_healthy(services: Services) -> None:
    """`duckicelake doctor` finds nothing."""
    assert [finding for finding in diagnose(services.database) if not finding.ok and finding.name != "changelog"] == []
    assert examine_tables(services.database)[0] == []


def assert_both_read(client: Client, duck: duckdb.DuckDBPyConnection, rows: list[tuple[int, str]]) -> None:
    assert sorted(pyiceberg_rows(client.load())) == sorted(duckdb_rows(duck)) == rows


def test_table_dropped_by_duckdb_comes_back_though_its_snapshots_were_expired(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    ducklake.execute("ALTER TABLE lake.ns.t ADD COLUMN more INTEGER DEFAULT 7")
    ducklake.execute("COMMENT ON TABLE lake.ns.t IS 'kept'")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'b', 8)")
    ducklake.execute("DROP TABLE lake.ns.t")
    expire_all(ducklake)
    undrop(services)
    assert sorted(pyiceberg_rows(client.load())) == sorted(duckdb_rows(ducklake)) == [(1, "a"), (2, "b")]
    assert ducklake.execute("SELECT more FROM lake.ns.t ORDER BY id").fetchall() == [(7,), (8,)]
    (comment,) = ducklake.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 't'").fetchone() or ()
    assert comment == "kept"


def test_table_that_no_client_has_loaded_comes_back(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'n' FROM range(30)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'inlined')")
    ducklake.execute("DROP TABLE lake.ns.t")
    expire_all(ducklake)
    undrop(services)
    assert sorted(pyiceberg_rows(client.load())) == sorted(duckdb_rows(ducklake))
    assert len(duckdb_rows(ducklake)) == 31


def test_table_comes_back_under_another_name_where_its_own_is_taken(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "old"))
    tables.drop_table(services, NS, "t", purge=False)
    client.create()
    client.append((2, "new"))
    with pytest.raises(AlreadyExistsError, match=r"Table already exists: ns.t"):
        undrop(services)
    undrop(services, new_name="t_old")
    assert pyiceberg_rows(client.load("t_old")) == [(1, "old")]
    assert ducklake.execute("FROM lake.ns.t_old").fetchall() == [(1, "old")]
    assert_both_read(client, ducklake, [(2, "new")])


def test_the_last_one_of_a_name_comes_back_unless_an_id_is_given(services: Services, client: Client) -> None:
    for row in ((1, "first"), (2, "second")):
        client.create()
        client.append(row)
        tables.drop_table(services, NS, "t", purge=False)
    second, first = listed(services)
    undrop(services)
    undrop(services, object_id=first.object_id, new_name="u")
    assert (pyiceberg_rows(client.load()), pyiceberg_rows(client.load("u"))) == ([(2, "second")], [(1, "first")])
    assert second.object_id > first.object_id


def test_branch_and_its_files_come_back(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    draft = Draft(client.metadata(), branch="work")
    ours = draft.data_file([(2, "b")])
    client.commit(draft.body([draft.manifest([ours]), *draft.parent_manifests]))
    files = {local(path) for path in (ours.file_path, *data_files(client.metadata()))}
    ducklake.execute("DROP TABLE lake.ns.t")
    expire_all(ducklake)
    assert all(path.exists() for path in files)
    undrop(services)
    assert client.load()["metadata"]["refs"].keys() == {"main", "work"}
    assert_whole(client.load())


def test_namespace_that_duckdb_dropped_comes_back_with_all_in_it(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    namespaces.update_namespace(services, NS, [], {"owner": "ann"})
    create_view(services, "v", {"duckdb": "SELECT 1::BIGINT AS id, 'x' AS city"}, namespace="ns")
    ducklake.execute("CREATE TABLE lake.ns.u AS SELECT 2 AS id")
    ducklake.execute("DROP SCHEMA lake.ns CASCADE")
    expire_all(ducklake)
    with pytest.raises(NoSuchNamespaceError, match="ns"):
        undrop(services)
    done = undrop(services, None, "namespace")
    assert (done.tables, done.views, listed(services)) == (2, 1, [])
    assert namespaces.load_namespace(services, NS)["owner"] == "ann"
    assert pyiceberg_rows(client.load()) == [(1, "a")]
    assert ducklake.execute("SELECT (SELECT id FROM lake.ns.u), (SELECT id FROM lake.ns.v)").fetchall() == [(2, 1)]
    assert views.load_view(services, NS, "v")


def test_view_comes_back_with_its_versions(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    create_view(services, "v", {"duckdb": "SELECT 1::BIGINT AS id, 'x' AS city"}, namespace="ns")
    before = views.load_view(services, NS, "v")
    views.drop_view(services, NS, "v")
    expire_all(ducklake)
    undrop(services, "v", "view")
    assert views.load_view(services, NS, "v") == before
    assert ducklake.execute("FROM lake.ns.v").fetchall() == [(1, "x")]


def test_nothing_comes_back_when_its_time_is_over(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    files = [local(path) for path in data_files(client.metadata())]
    tables.drop_table(services, NS, "t", purge=True)
    expire_all(ducklake)
    assert all(path.exists() for path in files)
    end_time(services)
    with pytest.raises(NotFoundError, match=r"no table ns.t was dropped within the time"):
        undrop(services)
    expire_all(ducklake)
    assert not any(path.exists() for path in files)


def test_who_may_lets_it_go_at_once(services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    client.append((1, "a"))
    files = [local(path) for path in data_files(client.metadata())]
    tables.drop_table(services, NS, "t", purge=True)
    (found,) = listed(services)
    dropped.forget_dropped(services, found.kind, found.object_id)
    expire_all(ducklake)
    assert listed(services) == []
    assert not any(path.exists() for path in files)


def test_what_is_given_up_to_another_catalog_does_not_come_back(services: Services, client: Client) -> None:
    client.create()
    unregister_table(services, NS, "t")
    assert listed(services) == []
    with pytest.raises(NotFoundError):
        undrop(services)


def test_a_lake_that_keeps_nothing_lists_nothing(services: Services, client: Client) -> None:
    keep(services, 0)
    client.create()
    tables.drop_table(services, NS, "t", purge=False)
    assert listed(services) == []
    with pytest.raises(NoSuchTableError):
        client.load()


def test_between_drop_and_return_the_table_is_not_there(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    tables.drop_table(services, NS, "t", purge=False)
    ((gap,),) = ducklake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    undrop(services)
    with pytest.raises(duckdb.Error, match="does not exist"):
        ducklake.execute(f"FROM lake.ns.t AT (VERSION => {gap})")
    assert ducklake.execute(f"FROM lake.ns.t AT (VERSION => {gap - 1})").fetchall() == [(1, "a")]


def test_protection_of_a_view_is_true_or_false(services: Services, client: Client) -> None:
    query = {"duckdb": "SELECT 1::BIGINT AS id, 'x' AS city"}
    create_view(services, "v", query, namespace="ns")
    with pytest.raises(InvalidRequestError, match="true or false"):
        create_view(services, "w", query, namespace="ns", properties={PROTECTED: "yes"})
    with pytest.raises(InvalidRequestError, match="true or false"):
        commit_view(services, "v", set_view_properties(**{PROTECTED: "yes"}), namespace="ns")


@pytest.mark.parametrize("seconds", [0, WEEK])
def test_no_client_drops_what_is_protected(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, seconds: float
) -> None:
    keep(services, seconds)
    client.create()
    client.append((1, "a"))
    create_view(services, "v", {"duckdb": "SELECT 1::BIGINT AS id, 'x' AS city"}, namespace="ns")
    client.commit(set_properties(**{PROTECTED: "true"}))
    commit_view(services, "v", set_view_properties(**{PROTECTED: "True"}), namespace="ns")
    namespaces.update_namespace(services, NS, [], {PROTECTED: "true"})
    location = client.load()["metadata-location"]
    replacing = RegisterTableRequest.model_validate({"name": "t", "metadata-location": location, "overwrite": True})
    for drop in (
        lambda: tables.drop_table(services, NS, "t", purge=False),
        lambda: tables.drop_table(services, NS, "t", purge=True),
        lambda: tables.unregister_table(services, NS, "t"),
        lambda: tables.register_table(services, NS, replacing),
        lambda: views.drop_view(services, NS, "v"),
    ):
        with pytest.raises(ProtectedError, match=r"^(Table ns.t|View ns.v) is protected: set its property"):
            drop()
    for statement in (
        "DROP TABLE lake.ns.t",
        "DROP VIEW lake.ns.v",
        "CREATE OR REPLACE TABLE lake.ns.t (x INTEGER)",
        "CREATE OR REPLACE VIEW lake.ns.v AS SELECT 2 AS x",
        "DROP SCHEMA lake.ns CASCADE",
    ):
        with pytest.raises(duckdb.Error, match="is protected: set its property"):
            ducklake.execute(statement)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'b')")
    ducklake.execute("ALTER TABLE lake.ns.t RENAME TO u")
    ducklake.execute("ALTER TABLE lake.ns.u RENAME TO t")
    assert_both_read(client, ducklake, [(1, "a"), (2, "b")])
    client.commit(set_properties(**{PROTECTED: "false"}))
    commit_view(services, "v", set_view_properties(**{PROTECTED: "false"}), namespace="ns")
    ducklake.execute("DROP TABLE lake.ns.t")
    views.drop_view(services, NS, "v")
    with pytest.raises(ProtectedError, match="Namespace ns is protected"):
        namespaces.drop_namespace(services, NS)
    namespaces.update_namespace(services, NS, [PROTECTED], {})
    namespaces.drop_namespace(services, NS)


def test_source_of_a_clone_is_guarded_as_long_as_the_clone_can_come_back(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    clone_table(services, NS, "c", CloneRequest((NS, "t")))
    tables.drop_table(services, NS, "c", purge=True)
    assert client.metadata()["properties"]["gc.enabled"] == "false"
    undrop(services, "c")
    assert pyiceberg_rows(client.load("c")) == [(1, "a")]
    tables.drop_table(services, NS, "c", purge=True)
    expire_all(ducklake)
    assert lift_guards(services) == []
    end_time(services)
    expire_all(ducklake)
    lift_guards(services)
    assert "gc.enabled" not in client.metadata()["properties"]
    assert pyiceberg_rows(client.load()) == [(1, "a")]
