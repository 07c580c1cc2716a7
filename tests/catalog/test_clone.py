"""CLONE: a table over another's files. Both go on by themselves, and no one takes away what the other needs."""

from dataclasses import dataclass
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog import tables
from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.commit.guards import lift_guards
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.restore import restore_table
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.errors import AlreadyExistsError, InvalidRequestError, NoSuchTableError
from tests.support import engine
from tests.support.client import NS, Client, Json, data_files, duckdb_rows, local, pyiceberg_rows, set_properties
from tests.support.foreign_catalog import CLEANERS
from tests.support.seams import fresh, superseded
from tests.support.table_history import FLUSH, MERGE, History, Rows, rows_of

CLONE = "c"


@dataclass(slots=True)
class Pair:
    """A table with all that DuckDB and Iceberg clients make of rows, and its clone."""

    source: History

    @property
    def client(self) -> Client:
        return Client(fresh(self.source.services))

    def clone(self, name: str = CLONE, of: str = "t", at: object = None, *, with_history: bool = False) -> Json:
        request = CloneRequest((NS, of), None if at is None else str(at), with_history)
        clone_table(self.source.services, NS, name, request)
        return self.client.load(name)

    def check(self, rows: Rows, name: str = CLONE) -> None:
        """Both sides read these rows from the clone, and what they should from its source."""
        self.check_alone(rows, name)
        self.source.check_main()

    def check_alone(self, rows: Rows, name: str = CLONE) -> None:
        answer = self.client.load(name)
        assert pyiceberg_rows(answer) == sorted(rows)
        assert duckdb_rows(self.source.duck, name) == sorted(rows)
        ids = self.source.duck.sql(f"SELECT rowid FROM lake.ns.{name}").fetchall()
        assert len(set(ids)) == len(rows)

    def clean(self) -> None:
        """Expire and delete all that DuckDB may."""
        for statement in CLEANERS:
            self.source.duck.execute(statement).fetchall()

    def history_of(self, name: str, rows: Rows) -> History:
        """The clone as a table of its own."""
        clone = History(self.source.services, self.source.duck, self.source.format_version, name=name)
        clone.shown[clone.head()] = rows
        clone.numbers = iter(range(5000, 6000))
        return clone

    def is_guarded(self, name: str) -> bool:
        return self.client.metadata(name)["properties"].get("gc.enabled") == "false"


@pytest.fixture
def pair(history: History) -> Pair:
    history.append(number=8)
    history.delete("main", history.ids()[:2])
    history.insert(20)
    history.insert(3)
    history.head()
    history.delete_in_duckdb([*history.ids()[1:3], *history.ids()[9:11], history.ids()[-1]])
    history.rename_in_duckdb(history.ids()[3:5], "renamed")
    return Pair(history)


def files_of(services: Services) -> set[Path]:
    return {path for path in Path(services.policy.warehouse).rglob("*.parquet") if path.is_file()}


def test_clone_shows_the_same_rows_with_their_ids_over_the_same_files(pair: Pair) -> None:
    source = pair.source
    rows, before = source.rows(), files_of(source.services)
    of_source = source.duck.sql("SELECT id, rowid FROM lake.ns.t ORDER BY id").fetchall()
    answer = pair.clone()
    pair.check(rows)
    metadata, theirs = answer["metadata"], source.metadata()
    assert sorted(data_files(metadata)) == sorted(data_files(theirs))
    new = files_of(source.services) - before
    assert all(path.name.endswith("-delete.parquet") for path in new)
    assert source.duck.sql(f"SELECT id, rowid FROM lake.ns.{CLONE} ORDER BY id").fetchall() == of_source
    assert metadata["table-uuid"] != theirs["table-uuid"]
    assert metadata["location"] != theirs["location"]
    (snapshot,) = metadata["snapshots"]
    assert snapshot["summary"]["cloned-from"] == f"ns.t@{theirs['current-snapshot-id']}"
    assert (pair.is_guarded("t"), pair.is_guarded(CLONE)) == (True, True)
    with pytest.raises(AlreadyExistsError):
        pair.clone()


def test_clone_keeps_row_ids_after_whole_files_are_gone(history: History) -> None:
    """Files of updated rows hold the ids that rows had in the source: those of other files can't be counted anew."""
    pair = Pair(history)
    for _ in range(3):
        history.append(number=8)
    history.rename_in_duckdb(history.ids()[10:12], "renamed")
    history.head()
    gone = history.ids()[:8]
    pair.client.commit(engine.rewrite_rows(gone)(history.metadata()))
    of_source = history.duck.sql("SELECT id, rowid FROM lake.ns.t ORDER BY id").fetchall()
    pair.clone()
    assert history.duck.sql(f"SELECT id, rowid FROM lake.ns.{CLONE} ORDER BY id").fetchall() == of_source
    assert len({row_id for _, row_id in of_source}) == len(of_source) == 16


def test_each_goes_on_without_the_other(pair: Pair) -> None:
    source = pair.source
    pair.clone()
    clone = pair.history_of(CLONE, source.rows())
    for one, statement in ((source, FLUSH), (clone, FLUSH), (source, MERGE), (clone, MERGE), (source, None)):
        one.append(number=2)
        one.delete("main", one.ids()[:3])
        one.insert(2)
        one.delete_in_duckdb(one.ids()[-3:-1])
        one.overwrite("main", one.ids()[:1])
        if statement is not None:
            one.duckdb(statement)
        source.check_main()
        pair.check_alone(clone.rows())


def test_a_clone_at_a_snapshot_and_one_with_the_history(pair: Pair) -> None:
    source = pair.source
    then, rows = source.head(), source.rows()
    source.set_ref("v1", then, "tag")
    source.overwrite("main", source.ids()[:3])
    source.append()
    pair.clone("old", at="v1")
    pair.check(rows, "old")
    answer = pair.clone("whole", with_history=True)
    pair.check(source.rows(), "whole")
    table = StaticTable.from_metadata(answer["metadata-location"])
    assert {each.snapshot_id for each in table.snapshots()} == source.snapshot_ids()
    for snapshot in table.snapshots():
        assert rows_of(table, snapshot.snapshot_id) == sorted(source.shown[snapshot.snapshot_id])
    assert answer["metadata"]["refs"].keys() == {"main", "v1"}


def empty(history: History) -> None:
    history.duckdb("DELETE FROM lake.ns.t", frozenset())
    history.duckdb(FLUSH)


def test_what_the_source_lets_go_of_stays_for_the_clone_and_goes_with_it(pair: Pair) -> None:
    source, services = pair.source, pair.source.services
    rows = source.rows()
    shared = {local(path) for path in data_files(pair.clone()["metadata"])}
    empty(source)
    source.expire(source.snapshot_ids() - {source.head()})
    for _ in range(2):
        pair.clean()
        source.duckdb("CHECKPOINT lake")
        pair.check(rows)
    assert all(path.exists() for path in shared)
    assert pair.is_guarded("t"), "files of the clone lie in its location"
    tables.drop_table(services, NS, CLONE, purge=True)
    pair.clean()
    pair.clean()
    assert [path for path in shared if path.exists()] == []
    lift_guards(services)
    assert not pair.is_guarded("t")
    source.check_main()


def test_purge_of_the_source_leaves_the_clone_whole_and_alone(pair: Pair) -> None:
    services, rows = pair.source.services, pair.source.rows()
    shared = {local(path) for path in data_files(pair.clone()["metadata"])}
    tables.drop_table(services, NS, "t", purge=True)
    pair.clean()
    pair.source.duck.execute("CHECKPOINT lake")
    pair.check_alone(rows)
    lift_guards(services)
    assert not pair.is_guarded(CLONE)
    clone = pair.history_of(CLONE, rows)
    clone.append()
    pair.check_alone(clone.rows())
    tables.drop_table(services, NS, CLONE, purge=True)
    pair.clean()
    pair.clean()
    assert [path for path in shared if path.exists()] == []


@pytest.mark.parametrize("gone", ["t", CLONE])
def test_dropping_either_in_duckdb_harms_no_one(pair: Pair, gone: str) -> None:
    rows = pair.source.rows()
    pair.clone()
    pair.source.duck.execute(f"DROP TABLE lake.ns.{gone}")
    pair.clean()
    pair.clean()
    pair.check_alone(rows, CLONE if gone == "t" else "t")


def test_a_guard_that_the_owner_set_is_the_clones_too_and_is_never_lifted(pair: Pair) -> None:
    services = pair.source.services
    pair.client.commit(set_properties(**{"gc.enabled": "false"}))
    rows = pair.source.rows()
    shared = {local(path) for path in data_files(pair.clone()["metadata"])}
    tables.drop_table(services, NS, "t", purge=True)
    lift_guards(services)
    pair.clean()
    assert pair.is_guarded(CLONE)
    pair.check_alone(rows)
    tables.drop_table(services, NS, CLONE, purge=True)
    pair.clean()
    assert all(path.exists() for path in shared if path.is_relative_to(local(services.policy.data_zone)))


@pytest.mark.parametrize("by", ["server", "client"])
def test_guard_stays_of_a_table_that_is_cloned_while_it_is_lifted(
    client: Client, ducklake: duckdb.DuckDBPyConnection, by: str
) -> None:
    client.create()
    client.append((1, "a"))
    clone_table(client.services, NS, CLONE, CloneRequest((NS, "t")))
    ducklake.execute(f"DROP TABLE lake.ns.{CLONE}")
    for statement in CLEANERS:
        ducklake.execute(statement).fetchall()
    server = superseded(client.services, lambda: clone_table(client.services, NS, "d", CloneRequest((NS, "t"))))
    if by == "server":
        assert lift_guards(server) == []
    else:
        unguard = {"action": "remove-properties", "removals": ["gc.enabled"]}
        with pytest.raises(InvalidRequestError, match="shares files"):
            Client(server).commit({"requirements": [], "updates": [unguard]})
    assert client.metadata()["properties"]["gc.enabled"] == "false"


def test_clone_of_a_clone_and_of_an_empty_table(pair: Pair, ducklake: duckdb.DuckDBPyConnection) -> None:
    rows = pair.source.rows()
    pair.clone()
    pair.clone("cc", of=CLONE)
    for name in ("t", CLONE):
        tables.drop_table(pair.source.services, NS, name, purge=True)
        pair.clean()
    pair.check_alone(rows, "cc")
    pair.client.create("nothing")
    pair.clone("still", of="nothing")
    assert not pair.is_guarded("still")
    ducklake.execute("INSERT INTO lake.ns.still VALUES (1, 'a')")
    pair.check_alone(frozenset({(1, "a")}), "still")
    with pytest.raises(NoSuchTableError):
        pair.clone("absent", of="absent")


def test_delta_tables_are_restored_by_version_and_cloned_without_touching_their_files(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    root = local(services.policy.warehouse) / "elsewhere" / "d"
    root.parent.mkdir(parents=True)
    for ids in ([1, 2, 3], [4, 5]):
        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"r{number}" for number in ids]})
        deltalake.write_deltalake(str(root), rows, mode="append", partition_by=["name"])
    deltalake.DeltaTable(str(root)).delete("id = 2")
    import_table(services, DeltaImport(str(root), NS, "t"))
    files = sorted(root.rglob("*.parquet"))
    clone_table(services, NS, "c", CloneRequest((NS, "t"), "v1"))
    clone_table(services, NS, "whole", CloneRequest((NS, "t"), with_history=True))
    for name, ids in (("c", [1, 2, 3, 4, 5]), ("whole", [1, 3, 4, 5])):
        expected = [(number, f"r{number}") for number in ids]
        assert pyiceberg_rows(client.load(name)) == duckdb_rows(ducklake, name) == expected
    assert restore_table(services, NS, "t", "v0").rows_removed == 2
    assert duckdb_rows(ducklake) == pyiceberg_rows(client.load()) == [(n, f"r{n}") for n in (1, 2, 3)]
    for name in ("t", "c", "whole"):
        tables.drop_table(services, NS, name, purge=True)
    for statement in CLEANERS:
        ducklake.execute(statement).fetchall()
    assert sorted(root.rglob("*.parquet")) == files


def test_files_that_are_read_by_name_are_cloned_and_restored(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    path = local(client.metadata()["location"]) / "data" / "f.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]}), path)
    ducklake.execute(f"CALL ducklake_add_data_files('lake', 't', '{path}', schema => 'ns')")
    first = client.metadata()["current-snapshot-id"]
    ducklake.execute("ALTER TABLE lake.ns.t RENAME COLUMN name TO title")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    clone_table(services, NS, "c", CloneRequest((NS, "t")))
    assert ducklake.sql("FROM lake.ns.c").fetchall() == [(2, "b")]
    assert StaticTable.from_metadata(client.load("c")["metadata-location"]).scan().to_arrow().to_pylist() == [
        {"id": 2, "title": "b"}
    ]
    restore_table(services, NS, "t", str(first))
    assert duckdb_rows(ducklake) == pyiceberg_rows(client.load()) == [(1, "a"), (2, "b")]
    clone_table(services, NS, "old", CloneRequest((NS, "t"), str(first)))
    assert duckdb_rows(ducklake, "old") == pyiceberg_rows(client.load("old")) == [(1, "a"), (2, "b")]
