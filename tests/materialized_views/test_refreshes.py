"""Refreshes of materialized views: what they read and write, who else may write, and what stays when one fails."""

import json
import os
import signal
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.dropped import UndropRequest, undrop
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.catalog.tables import drop_table, rename_table
from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    ConflictError,
    InvalidRequestError,
    NoSuchTableError,
    ReadOnlyTableError,
    UnavailableError,
)
from duckicelake.iceberg.rest import RenameTableRequest
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.materialized_views import view_rows
from duckicelake.properties import REFRESH_STATE
from duckicelake.query import contents, service
from duckicelake.query.processes import QueryProcess
from duckicelake.query.saved_results import SOURCE_SNAPSHOT
from duckicelake.upkeep.actions import load_action
from tests.materialized_views.conftest import LIMITS, Views
from tests.support.killed_process import FreeControl

GROUPS = "SELECT k, count(*) AS n, count(v) AS counted, sum(v) AS total, max(s) AS last FROM {t} GROUP BY k"
ROWS = "SELECT k + 1 AS k, upper(s) AS s FROM {t} WHERE v > 2"


@pytest.fixture
def views(views: Views) -> Views:
    views.lake.run(
        "CREATE TABLE t (k INT, v DECIMAL(10,2), s VARCHAR)",
        "INSERT INTO t VALUES (1, 2.5, 'a'), (1, 3, 'b'), (NULL, 4, NULL), (2, NULL, 'd')",
    )
    return views


def keep_dropped(views: Views) -> None:
    with views.services.database.transaction() as cursor:
        set_retention(cursor, 3600)


def test_refresh_is_unchanged_incremental_or_whole_by_what_happened(views: Views) -> None:
    views.create("grouped", GROUPS)
    views.create("filtered", ROWS)
    assert views.refresh("grouped").last.mode == "unchanged"
    views.lake.run("INSERT INTO t VALUES (1, 10, 'z'), (7, 1, 'q'), (NULL, NULL, 'x')")
    for name, sql in (("grouped", GROUPS), ("filtered", ROWS)):
        assert views.refresh(name).last.mode == "incremental"
        views.assert_exact(name, sql)
    assert views.find("filtered").last.rows_written == 1
    views.lake.run("DELETE FROM t WHERE k = 7", "UPDATE t SET v = 100 WHERE k = 2")
    for name, sql in (("grouped", GROUPS), ("filtered", ROWS)):
        last = views.refresh(name).last
        assert last.mode == "whole"
        assert "more than appends" in last.reason
        views.assert_exact(name, sql)
    assert views.refresh("grouped", is_whole=True).last.reason == "asked for"


@pytest.mark.parametrize("removal", ["DELETE FROM t WHERE k > 105", "UPDATE t SET v = 0 WHERE k > 105"])
def test_transaction_that_removes_rows_it_inserted_had_more_than_appends(views: Views, removal: str) -> None:
    """DuckDB 1.5.5 records that it inserted rows, and lists also those that it removed."""
    views.create("grouped", GROUPS)
    insert = "INSERT INTO t SELECT 100 + i, i, 'z' FROM range(30) r(i)"
    views.lake.run("BEGIN", insert, removal, "COMMIT")
    last = views.refresh("grouped").last
    assert (last.mode, "deleted_from_table" in last.reason) == ("whole", True)
    views.assert_exact("grouped", GROUPS)


def test_flush_and_compaction_of_a_source_count_as_no_change(views: Views) -> None:
    views.create("grouped", GROUPS)
    views.lake.run("INSERT INTO t VALUES (1, 10, 'z')", "CALL ducklake_flush_inlined_data('lake')")
    views.lake.run(
        "INSERT INTO t SELECT i, i, 'r' || i FROM range(50) r(i)", "CALL ducklake_merge_adjacent_files('lake')"
    )
    assert views.refresh("grouped").last.mode == "incremental"
    views.assert_exact("grouped", GROUPS)
    views.lake.run("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    assert views.refresh("grouped").last.mode == "unchanged"


def test_upkeep_of_a_source_counts_as_no_change(views: Views) -> None:
    properties = {
        "commit.manifest-merge.enabled": "false",
        "write.parquet.bloom-filter-enabled.column.k": "true",
    }
    views.lake.commit({"action": "set-properties", "updates": properties})
    policies = {"maintenance.compaction.min-files": "2", "maintenance.sort.order": "k DESC"}
    views.create("grouped", GROUPS)
    for kind in ("pack-manifests", "bloom-filters", "compact", "sort", "statistics"):
        for number in range(3):
            insert = f"INSERT INTO t SELECT i, {number}, 'r' FROM range(1000) r(i)"
            views.lake.run(insert, "CALL ducklake_flush_inlined_data('lake')")
        assert views.refresh("grouped").last.mode == "incremental"
        task = UpkeepTask(kind, ("main",), "t", "asked for", parse_policy(policies), 128 * 2**20)
        assert load_action(kind)(views.services, task, FreeControl()).result == "done"
        assert views.refresh("grouped").last.mode == "unchanged", kind
    views.assert_exact("grouped", GROUPS)


def test_result_without_rows_and_groups_of_nothing(views: Views) -> None:
    empty, total = (
        "SELECT k, s FROM {t} WHERE k > 1000",
        "SELECT count(*) AS n, sum(v) AS v, min(k) AS k FROM {t} WHERE k > 1000",
    )
    views.create("nothing", empty)
    views.create("total", total)
    for name, sql in (("nothing", empty), ("total", total)):
        views.assert_exact(name, sql)
    views.lake.run("INSERT INTO t VALUES (1, 10, 'z')")
    assert views.refresh("nothing").last.mode == "incremental"
    views.lake.run("INSERT INTO t VALUES (2000, 10, 'z')")
    for name, sql in (("nothing", empty), ("total", total)):
        assert views.refresh(name).last.mode == "incremental"
        views.assert_exact(name, sql)


def test_summary_and_record_name_the_snapshots_of_the_sources(views: Views) -> None:
    views.lake.run("CREATE TABLE u (k INT, w INT)", "INSERT INTO u VALUES (1, 5)")
    views.lake.run("CREATE VIEW joined AS SELECT t.k, u.w FROM t JOIN u USING (k)")
    made = views.create("mv", "SELECT k, sum(w) AS w FROM joined GROUP BY k")
    kinds = {(source.kind, source.name) for source in made.last.sources}
    assert kinds == {("view", "joined"), ("table", "t"), ("table", "u")}
    summary = views.lake.metadata("mv").current_snapshot().summary  # type: ignore[union-attr]
    state = json.loads(summary[REFRESH_STATE])
    by_uuid = {one["uuid"]: one for one in state["source-states"]}
    for name in ("t", "u"):
        metadata = views.lake.metadata(name)
        assert by_uuid[metadata.table_uuid]["snapshot-id"] == metadata.current_snapshot_id
    assert summary[SOURCE_SNAPSHOT] == str(made.last.snapshot_id)


def test_view_of_views_follows_what_they_say(views: Views) -> None:
    views.lake.run("CREATE VIEW low AS SELECT k, v FROM t WHERE v < 5")
    views.create("mv", "SELECT k, count(*) AS n FROM low GROUP BY k")
    views.lake.run("INSERT INTO t VALUES (9, 1, 'y')")
    assert views.refresh("mv").last.mode == "incremental"
    views.lake.run("CREATE OR REPLACE VIEW low AS SELECT k, v FROM t WHERE v < 3")
    last = views.refresh("mv").last
    assert (last.mode, last.reason) == ("whole", "the SQL of a view that it reads has changed")
    views.assert_exact("mv", "SELECT k, count(*) AS n FROM {t} WHERE v < 3 GROUP BY k")


def test_view_of_a_materialized_view(views: Views) -> None:
    views.create("grouped", GROUPS)
    views.create("above", "SELECT sum(n) AS n FROM grouped")
    views.lake.run("INSERT INTO t VALUES (1, 10, 'z')")
    views.refresh("grouped")
    views.refresh("above")
    assert views.rows("FROM above") == [(5,)]


def test_renamed_source_is_followed_and_a_dropped_one_missed(views: Views) -> None:
    keep_dropped(views)
    views.create("mv", "SELECT k FROM t")
    views.lake.run("ALTER TABLE t RENAME TO t2", "CREATE TABLE t (k INT)", "INSERT INTO t2 VALUES (77, 1, 'n')")
    views.refresh("mv")
    assert (77,) in views.rows("FROM mv")
    before = views.rows("FROM mv")
    views.lake.run("DROP TABLE t2")
    with pytest.raises(NoSuchTableError, match=r"The source main\.t was dropped"):
        views.refresh("mv")
    failed = views.find("mv")
    assert failed.error is not None
    assert "undrop" in failed.error
    assert views.rows("FROM mv") == before
    undrop(views.services, UndropRequest("table", ("main",), "t2"))
    assert views.refresh("mv").error is None


@pytest.mark.parametrize(
    ("alteration", "says"),
    [
        ("ALTER TABLE t DROP COLUMN v", "v"),
        ("ALTER TABLE t RENAME COLUMN v TO w", "v"),
        ("ALTER TABLE t ALTER COLUMN k TYPE BIGINT", "The query's columns are k BIGINT"),
    ],
)
def test_altered_source_leaves_the_contents_and_a_clear_state(views: Views, alteration: str, says: str) -> None:
    views.create("mv", "SELECT k, v FROM {t}")
    before = views.rows("FROM mv")
    views.lake.run(alteration)
    with pytest.raises(InvalidRequestError, match=says):
        views.refresh("mv")
    assert says in str(views.find("mv").error)
    assert views.rows("FROM mv") == before


def test_query_that_fails_leaves_the_contents(views: Views) -> None:
    sql = "SELECT k, CAST(s AS INT) AS i FROM {t} WHERE k > 5"
    views.create("mv", sql)
    views.lake.run("INSERT INTO t VALUES (6, 1, '17')")
    views.refresh("mv")
    views.lake.run("INSERT INTO t VALUES (6, 1, 'no number')")
    with pytest.raises(InvalidRequestError, match="no number"):
        views.refresh("mv")
    assert views.rows("FROM mv") == [(6, 17)]
    views.lake.run("DELETE FROM t WHERE s = 'no number'")
    assert views.refresh("mv").error is None
    views.assert_exact("mv", sql)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT now() AS x", "gives something else each time"),
        ("SELECT current_date AS x", "gives something else each time"),
        ("SELECT random() AS x FROM t", "gives something else each time"),
        ("SELECT ago(INTERVAL 1 DAY) AS x FROM t", "gives something else each time"),
        ("SELECT age(TIMESTAMP '2026-01-01') AS x FROM t", "gives something else each time"),
        ("SELECT * FROM t USING SAMPLE 3", "gives something else each time"),
        ("SELECT INTERVAL 1 DAY AS i", "no table here keeps exactly"),
        ("SELECT [INTERVAL 1 DAY] AS i", "no table here keeps exactly"),
        ("SELECT k, K FROM t", "several columns called k"),
        ("SELECT k FROM t AT (VERSION => 1)", "AT has no place"),
        ("INSERT INTO t VALUES (1)", "Only SELECT"),
        ("SELECT nope FROM t", "nope"),
        ("SELECT read_text('/etc/passwd') AS x", "read_text"),
    ],
)
def test_query_that_no_view_can_show_is_refused(views: Views, sql: str, says: str) -> None:
    with pytest.raises(CatalogError, match=says.replace("(", r"\(")):
        views.create("mv", sql)
    with pytest.raises(NoSuchTableError):
        views.find("mv")


def test_name_that_is_taken(views: Views) -> None:
    with pytest.raises(AlreadyExistsError):
        views.create("t", "SELECT 1 AS x")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO mv VALUES (1, 'x')",
        "INSERT INTO mv SELECT i, 'x' FROM range(100) r(i)",
        "DELETE FROM mv",
        "UPDATE mv SET s = 'y'",
        "ALTER TABLE mv ADD COLUMN z INT",
    ],
)
def test_duckdb_does_not_write_a_view(views: Views, statement: str) -> None:
    views.create("mv", "SELECT k, s FROM {t}")
    with pytest.raises(duckdb.Error, match=r"main\.mv is a materialized view"):
        views.lake.run(statement)
    views.assert_exact("mv", "SELECT k, s FROM {t}")


def test_rest_clients_do_not_write_a_view(views: Views) -> None:
    views.create("mv", "SELECT k, s FROM {t}")
    posted = PostedRows(("main",), "mv", b'[{"k": 1}]', "application/json")
    with pytest.raises(ReadOnlyTableError, match="materialized view"):
        append_rows(views.services, posted)
    field = {"id": 3, "name": "z", "type": "int", "required": False}
    schema = views.lake.metadata("mv").schema().to_json()
    wider = {**schema, "schema-id": 1, "fields": [*schema["fields"], field]}
    with pytest.raises(ReadOnlyTableError, match="materialized view"):
        views.lake.commit(
            {"action": "add-schema", "schema": wider}, {"action": "set-current-schema", "schema-id": -1}, table="mv"
        )
    views.lake.commit({"action": "set-properties", "updates": {"owner": "ann"}}, table="mv")


def test_view_is_compacted_renamed_dropped_and_brought_back(views: Views) -> None:
    keep_dropped(views)
    views.create("mv", "SELECT k, s FROM {t}")
    for number in range(3):
        views.lake.run(f"INSERT INTO t VALUES ({number}, 1, 'n')")
        views.refresh("mv")
    views.lake.run("CALL ducklake_merge_adjacent_files('lake')")
    names = {"source": {"namespace": ["main"], "name": "mv"}, "destination": {"namespace": ["main"], "name": "mv2"}}
    rename_table(views.services, RenameTableRequest.model_validate(names))
    views.lake.run("INSERT INTO t VALUES (55, 1, 'n')")
    assert views.refresh("mv2").last.mode == "incremental"
    views.assert_exact("mv2", "SELECT k, s FROM {t}")
    drop_table(views.services, ("main",), "mv2", purge=False)
    with pytest.raises(NoSuchTableError):
        views.find("mv2")
    undrop(views.services, UndropRequest("table", ("main",), "mv2"))
    views.lake.run("INSERT INTO t VALUES (56, 1, 'n')")
    views.refresh("mv2")
    views.assert_exact("mv2", "SELECT k, s FROM {t}")


def test_table_that_was_written_past_the_guard_is_computed_whole(views: Views) -> None:
    views.create("mv", "SELECT k, s FROM {t}")
    with views.services.database.transaction() as cursor:
        cursor.execute("ALTER TABLE ducklake_snapshot_changes DISABLE TRIGGER duckicelake_refuse_view_writes")
    views.lake.run("INSERT INTO mv VALUES (1234, 'foreign')")
    last = views.refresh("mv").last
    assert (last.mode, last.reason) == ("whole", "others have written the view's table")
    views.assert_exact("mv", "SELECT k, s FROM {t}")


def test_second_refresh_at_once_is_refused(views: Views) -> None:
    view = views.create("mv", "SELECT k FROM {t}")
    with views.services.database.statement() as cursor, view_rows.hold_lease(cursor, view.table_id) as is_ours:
        assert is_ours
        with pytest.raises(ConflictError, match="Another refresh"):
            views.refresh("mv")
    assert views.find("mv").error is None


def test_refresh_after_a_faster_one_writes_nothing(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    views.create("mv", "SELECT k FROM {t}")
    views.lake.run("INSERT INTO t VALUES (8, 1, 'n')")
    write = contents.ContentProcess.write

    def overtake(self: contents.ContentProcess, *given: Any) -> Any:
        with views.services.database.transaction() as cursor:
            cursor.execute("UPDATE duckicelake_materialized_view SET refreshes = refreshes + 1")
        return write(self, *given)

    monkeypatch.setattr(contents.ContentProcess, "write", overtake)
    with pytest.raises(ConflictError, match="was faster"):
        views.refresh("mv")
    monkeypatch.undo()
    assert (8,) not in views.rows("FROM mv")
    views.refresh("mv")
    views.assert_exact("mv", "SELECT k FROM {t}")


def test_process_that_is_killed_leaves_the_contents(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    views.create("mv", "SELECT k FROM {t}")
    views.lake.run("INSERT INTO t VALUES (8, 1, 'n')")
    ask = QueryProcess.ask

    def kill_first(self: QueryProcess, kind: bytes, *given: Any) -> Any:
        if kind == b"W":
            os.kill(self.pid, signal.SIGKILL)
        return ask(self, kind, *given)

    monkeypatch.setattr(QueryProcess, "ask", kill_first)
    with pytest.raises(UnavailableError, match="has ended"):
        views.refresh("mv")
    monkeypatch.undo()
    assert "has ended" in str(views.find("mv").error)
    assert views.refresh("mv").error is None
    views.assert_exact("mv", "SELECT k FROM {t}")


def test_store_without_room_leaves_the_contents(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    views.create("mv", "SELECT k FROM {t}")
    views.lake.run("INSERT INTO t VALUES (8, 1, 'n')")

    def refuse(*_: Any) -> None:
        raise UnavailableError("No space left on device")

    monkeypatch.setattr(type(views.services.store), "write", refuse)
    with pytest.raises(UnavailableError, match="No space left"):
        views.refresh("mv")
    monkeypatch.undo()
    assert views.find("mv").error == "No space left on device"
    assert views.refresh("mv").last.mode == "incremental"
    views.assert_exact("mv", "SELECT k FROM {t}")


def test_query_that_needs_more_memory_than_there_is_fails_clearly(views: Views) -> None:
    """A refresh that is asked for has the memory of a query, and says by which setting it gets more."""
    views.create("mv", "SELECT k FROM {t}")
    views.create("large", "SELECT list(k) AS ks FROM {t}")
    views.lake.run("INSERT INTO t SELECT i, i, 'x' || i FROM range(3_000_000) r(i)")
    service._limits[views.services.database] = replace(LIMITS, memory_bytes=32 * 1024**2, disk_bytes=0)
    with pytest.raises(InvalidRequestError, match=r"more memory.*DUCKICELAKE_QUERY_MEMORY_BYTES"):
        views.refresh("large")
    assert "more memory" in str(views.find("large").error)


def test_types_that_sums_and_columns_have(views: Views) -> None:
    views.lake.run(
        "CREATE TABLE u (a UTINYINT, b UBIGINT, c FLOAT, d DOUBLE, e TIMESTAMP, f UUID, g VARCHAR[], h BLOB, i INT)",
        "INSERT INTO u VALUES (255, 18446744073709551615, 'NaN', '-Infinity', '2026-01-01 12:00:00', "
        "'00000000-0000-0000-0000-000000000001', ['x', NULL], '\\xFF'::BLOB, 5)",
    )
    plain = "SELECT a, b, c, d, e, f, g, h FROM {u}"
    sums = "SELECT a, sum(b) AS b, sum(i) AS i FROM {u} GROUP BY a"
    views.create("kept", plain)
    views.create("summed", sums)
    views.lake.run("INSERT INTO u SELECT * FROM u")
    assert views.refresh("kept").last.mode == "incremental"
    assert views.refresh("summed").last.mode == "incremental"
    views.assert_exact("kept", plain)
    views.assert_exact("summed", sums)


def test_replaced_view_is_one_that_the_new_one_does_not_read(views: Views) -> None:
    views.create("old", "SELECT k FROM {t}")
    with pytest.raises(InvalidRequestError, match=r"would read main\.old, which it replaces"):
        views.create("new", "SELECT {t}.k FROM {t} JOIN old ON true", replaces="old")
    with pytest.raises(NoSuchTableError, match=r"Materialized view does not exist: main\.t"):
        views.create("new", "SELECT k FROM {t}", replaces="t")
    views.create("new", "SELECT k FROM {t}", replaces="old")
    drop_table(views.services, ("main",), "old", False)
    views.lake.run("INSERT INTO t VALUES (2, 3, 'y')")
    assert views.refresh("new").last.mode == "incremental"
