"""RESTORE: main is again what it was, by one commit, whatever happened in between on either side."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.restore import Restored, restore_table
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.errors import ExpiredError, FileMissingError, InvalidRequestError, NoSuchTableError, NotFoundError
from duckicelake.storage.protocol import ObjectStore
from tests.support.client import (
    NS,
    Client,
    data_files,
    local,
    set_ref,
)
from tests.support.seams import fresh
from tests.support.table_history import FLUSH, MERGE, History

MAINTENANCE = (FLUSH, MERGE, "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")


def restore(history: History, to: object, **options: Any) -> Restored:
    restored = restore_table(history.services, NS, "t", str(to), **options)
    if restored.snapshot_id is not None:
        history.shown[restored.snapshot_id] = history.shown[restored.restored_from]
        history.note()
    return restored


def test_everything_that_happened_since_is_undone_and_can_be_redone(history: History) -> None:
    first = history.append()
    history.insert(3)
    second = history.head()
    history.delete("main", history.ids()[1:2])
    third = history.head()
    history.overwrite("main", history.ids()[:1])
    history.insert(20)
    history.delete_in_duckdb(history.ids()[2:5])
    last = history.head()
    for target in (first, last, second, third, last):
        before = history.head()
        restored = restore(history, target)
        assert (restored.restored_from, restored.restored_over) == (target, before)
        assert history.head() == restored.snapshot_id
        history.check()
    summary = history.metadata()["snapshots"][-1]["summary"]
    assert summary["operation"] == "overwrite"
    assert summary["restored-from"] == str(last)
    assert int(summary["ducklake.snapshot-id"]) == restored.ducklake_id == max(history.ducklake_snapshots())


@pytest.mark.parametrize("statement", MAINTENANCE)
def test_rows_come_back_with_their_ids_after_duckdb_rewrote_their_files(history: History, statement: str) -> None:
    history.append()
    history.insert(3)
    history.insert(2)
    target = history.head()
    history.metadata()
    history.delete_in_duckdb(history.ids()[::2])
    history.append()
    history.duckdb(statement)
    restored = restore(history, target)
    assert restored.snapshot_id == history.head()
    history.check_main()
    history.insert(2)
    history.delete_in_duckdb(history.ids()[:2])
    history.rename_in_duckdb(history.ids()[:1], "renamed")
    history.check_main()


def test_rows_deleted_by_vectors_and_position_deletes_come_and_go(history: History) -> None:
    history.append(number=8)
    history.delete("main", history.ids()[:2])
    some = history.head()
    history.delete("main", history.ids()[:2])
    more = history.head()
    history.delete_in_duckdb(history.ids()[:1])
    restored = restore(history, some)
    assert (restored.rows_added, restored.rows_removed) == (3, 0)
    assert (restored.files_added, restored.files_removed) == (0, 0)
    history.check()
    assert restore(history, more).rows_removed == 2
    history.check()


def test_history_stays_and_expiry_of_what_was_undone_takes_no_file_that_is_needed(history: History) -> None:
    first = history.append()
    history.overwrite("main", history.ids())
    undone = history.head()
    restored = restore(history, first)
    assert {first, undone, restored.snapshot_id} <= history.snapshot_ids()
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in history.metadata()["snapshots"]}
    assert parents[restored.snapshot_id] == first
    history.expire([undone])
    history.clean_in_duckdb()
    history.check_main()
    history.expire([first])
    history.clean_in_duckdb()
    history.check_main()


def test_a_branch_is_left_alone_and_main_becomes_what_it_is(history: History) -> None:
    first = history.append()
    history.set_ref("dev", first)
    history.set_ref("v1", first, "tag")
    history.append("dev")
    head = history.append("dev")
    history.append()
    restored = restore(history, "dev")
    assert restored.restored_from == head == history.head("dev")
    history.check()
    assert restore(history, "v1").restored_from == first
    history.check()


def test_dry_run_shows_and_changes_nothing(history: History) -> None:
    first = history.append(number=5)
    history.append(number=2)
    before = history.metadata()
    report = restore(history, first, is_dry_run=True)
    assert report == Restored(first, history.head(), files_removed=1, rows_removed=2)
    assert history.metadata() == before


def test_nothing_to_do_makes_no_snapshot(history: History) -> None:
    first = history.append()
    restored = restore(history, first)
    assert restored == Restored(first, first)
    assert history.head() == first


def test_a_file_that_is_gone_is_named(history: History) -> None:
    first = history.append()
    (path,) = data_files(history.metadata())
    history.overwrite("main", history.ids())
    local(path).unlink()
    with pytest.raises(FileMissingError, match=path):
        restore(history, first)


def test_schema_partition_spec_and_sort_order_are_those_of_then_and_properties_stay(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE SCHEMA lake.s; CREATE TABLE lake.s.t (id INTEGER, name VARCHAR)")
    ducklake.execute("ALTER TABLE lake.s.t SET PARTITIONED BY (id); ALTER TABLE lake.s.t SET SORTED BY (name)")
    ducklake.execute("INSERT INTO lake.s.t VALUES (1, 'a'), (2, 'b')")
    then = load_current_table(services, ("s",), "t").metadata
    for change in (
        "ADD COLUMN more DOUBLE DEFAULT 1.5",
        "ALTER id TYPE BIGINT",
        "RENAME COLUMN name TO title",
        "RESET PARTITIONED BY",
        "RESET SORTED BY",
    ):
        ducklake.execute(f"ALTER TABLE lake.s.t {change}")
    ducklake.execute("INSERT INTO lake.s.t VALUES (10000000000, 'c', 2.5)")
    ducklake.execute("COMMENT ON TABLE lake.s.t IS 'stays'")
    restored = restore_table(services, ("s",), "t", str(then.current_snapshot_id))
    assert restored.changes_definition
    now = load_current_table(fresh(services), ("s",), "t").metadata
    for name in ("current_schema_id", "default_spec_id", "default_sort_order_id"):
        assert getattr(now, name) == getattr(then, name), name
    assert now.properties["comment"] == "stays"
    assert ducklake.sql("FROM lake.s.t ORDER BY id").fetchall() == [(1, "a"), (2, "b")]
    assert ducklake.sql("FROM lake.s.t LIMIT 0").columns == ["id", "name"]
    assert ducklake.sql("SELECT max(id), count(*) FILTER (id < 2) FROM lake.s.t").fetchall() == [(2, 1)]
    ducklake.execute("INSERT INTO lake.s.t VALUES (3, 'd')")
    assert ducklake.sql("SELECT count(*), max(id) FROM lake.s.t WHERE id > 0").fetchall() == [(3, 3)]


def test_a_column_that_comes_back_has_its_rows_and_nulls(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE SCHEMA lake.s; CREATE TABLE lake.s.t (id INTEGER, x INTEGER)")
    ducklake.execute("INSERT INTO lake.s.t SELECT i, 5 FROM range(20) r(i)")
    first = load_current_table(services, ("s",), "t").metadata.current_snapshot_id
    ducklake.execute("ALTER TABLE lake.s.t DROP COLUMN x")
    ducklake.execute("INSERT INTO lake.s.t SELECT i FROM range(20, 40) r(i)")
    second = load_current_table(services, ("s",), "t").metadata.current_snapshot_id
    restore_table(services, ("s",), "t", str(first))
    assert ducklake.sql("SELECT count(*), sum(x), max(x) FROM lake.s.t WHERE x = 5").fetchall() == [(20, 100, 5)]
    restore_table(services, ("s",), "t", str(second))
    assert ducklake.sql("SELECT count(*) FROM lake.s.t").fetchall() == [(40,)]
    assert ducklake.sql("FROM lake.s.t LIMIT 0").columns == ["id"]


@dataclass(frozen=True, slots=True)
class Busy:
    """A store that someone commits beside while it is asked for the first file."""

    store: ObjectStore
    acts: list[Callable[[], object]]

    def exists(self, location: str) -> bool:
        if self.acts:
            self.acts.pop()()
        return self.store.exists(location)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


def test_a_commit_that_comes_between_is_undone_as_well(history: History) -> None:
    first = history.append()
    history.overwrite("main", history.ids())
    between: list[int] = []
    busy = Busy(history.services.store, [lambda: between.append(history.append())])
    restored = restore(replace(history, services=replace(history.services, store=busy)), first)
    assert [restored.restored_over] == between
    history.check_main()


class TestNames:
    """What a snapshot may be called."""

    def test_delta_version_ducklake_number_time_and_alias(
        self, history: History, ducklake: duckdb.DuckDBPyConnection
    ) -> None:
        draft = history.draft("main", "append")
        rows = history.new_rows(2, "delta")
        body = draft.body(
            [draft.manifest([draft.data_file(rows)])], summary={"operation": "append", "delta.version": "7"}
        )
        history.client.commit(body)
        first = history.head()
        history.shown[first] = frozenset(rows)
        at = max(history.ducklake_snapshots())
        since = history.metadata()["snapshot-log"][-1]["timestamp-ms"]
        ducklake.execute("CREATE TABLE lake.ns.other (i INTEGER)")
        second = history.append()
        ducklake.execute("INSERT INTO lake.ns.other VALUES (1)")
        table = load_current_table(history.services, NS, "t")

        def found(text: str) -> int:
            return resolve_snapshot(history.services, table, text).snapshot_id

        assert found("v7") == found(str(first)) == found(str(at)) == found(str(at + 1)) == first
        assert found(str(draft.snapshot_id)) == first
        assert found("main") == found(str(at + 2)) == found(str(at + 3)) == found("2999-01-01") == second
        moment = ducklake.sql(f"SELECT epoch_ms({since})").fetchall()[0][0]
        assert found(moment.isoformat()) == first
        for unknown, error in {"v8": NotFoundError, str(at + 4): NotFoundError, "1999-01-01T00:00Z": NotFoundError,
                               "never": InvalidRequestError, "0": NotFoundError}.items():  # fmt: skip
            with pytest.raises(error):
                found(unknown)

    def test_rollback_is_found_by_number_and_what_isnt_listed_is_refused(self, history: History) -> None:
        first = history.append()
        history.insert(1)
        collapsed = max(history.ducklake_snapshots())
        history.duck.execute("INSERT INTO lake.ns.t VALUES (1000, 'x')")
        history.duck.execute("INSERT INTO lake.ns.t VALUES (1001, 'y')")
        history.metadata()
        table = load_current_table(history.services, NS, "t")
        assert resolve_snapshot(history.services, table, str(collapsed)).summary["ducklake.snapshot-id"] == str(
            collapsed
        )
        with pytest.raises(ExpiredError, match=f"Iceberg lists no snapshot .* {collapsed + 1}"):
            resolve_snapshot(history.services, table, str(collapsed + 1))
        history.client.commit({"requirements": [], "updates": [set_ref("main", first)]})
        at = max(history.ducklake_snapshots())
        table = load_current_table(history.services, NS, "t")
        assert resolve_snapshot(history.services, table, str(at)).snapshot_id == first

    def test_transaction_that_left_no_row_is_what_was_before(self, history: History) -> None:
        """DuckLake says of it that it inlined some."""
        history.append()
        history.insert(2)
        before, number = history.head(), max(history.ducklake_snapshots())
        for _ in range(2):
            history.duck.execute("BEGIN; INSERT INTO lake.ns.t VALUES (1000, 'x')")
            history.duck.execute("DELETE FROM lake.ns.t WHERE id = 1000; COMMIT")
        history.insert(1)
        history.duck.execute("INSERT INTO lake.ns.t VALUES (1000, 'x')")
        history.duck.execute("INSERT INTO lake.ns.t VALUES (1001, 'y')")
        table = load_current_table(history.services, NS, "t")
        for at in range(number, number + 3):
            assert resolve_snapshot(history.services, table, str(at)).snapshot_id == before, at
        assert resolve_snapshot(history.services, table, str(number + 3)).snapshot_id not in {before, history.head()}
        with pytest.raises(ExpiredError):
            resolve_snapshot(history.services, table, str(number + 4))

    @pytest.mark.usefixtures("client")
    def test_table_that_is_not_there(self, services: Services) -> None:
        with pytest.raises(NoSuchTableError):
            restore_table(services, NS, "absent", "1")
