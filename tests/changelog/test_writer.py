"""The changelog has what anybody did to the lake: from both sides, in order, and once."""

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from threading import Event, Thread

import duckdb
import psycopg
import pyarrow as pa
import pyiceberg
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.changelog.changed_objects import ChangedObject
from duckicelake.changelog.entries import (
    END_POSITION,
    LAST_ORDINAL,
    START_POSITION,
    ChangeKind,
    LoggedChange,
    LogPosition,
    WantedChanges,
    await_changelog,
    prune_entries,
    read_changes,
    read_latest,
    read_newest_position,
    read_oldest,
)
from duckicelake.changelog.facts import SnapshotRequests
from duckicelake.changelog.source import AuditedRequest, LakeSnapshot
from duckicelake.changelog.writer import (
    MAX_BATCH_SNAPSHOTS,
    MAX_TRIES,
    ChangelogWriter,
    follow_in_background,
    write_all_changes,
    write_new_changes,
)
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from tests.conftest import Attach, services_of
from tests.support.lakes import Lake

NUMBERS = pa.schema([("i", pa.int32())])
Reported = tuple[str, str, dict[str, int]]


def report(
    database: Database, after: LogPosition = START_POSITION, wanted: WantedChanges | None = None
) -> list[LoggedChange]:
    with database.reading() as cursor:
        return read_changes(cursor, after, 100_000, wanted or WantedChanges())


def folded(services: Services, after: LogPosition = START_POSITION) -> list[LoggedChange]:
    write_all_changes(services)
    return report(services.database, after)


def counted(change: LoggedChange) -> dict[str, int]:
    """Its metrics without those in bytes."""
    metrics = change.facts.get("metrics", {})
    return {name: value for name, value in metrics.items() if "size" not in name and not name.startswith("total-")}


def brief(found: Sequence[LoggedChange]) -> list[Reported]:
    return [(change.kind.value, change.resource, counted(change)) for change in found]


DUCKDB: Sequence[tuple[str, list[Reported]]] = [
    ("CREATE SCHEMA s", [("create-namespace", "s", {})]),
    ('CREATE TABLE s."t.é" (i INT)', [("create-table", "s.t%2Eé", {})]),
    ('INSERT INTO s."t.é" VALUES (1)', [("append", "s.t%2Eé", {"added-records": 1})]),
    (
        'INSERT INTO s."t.é" FROM range(100)',
        [("append", "s.t%2Eé", {"added-data-files": 1, "added-records": 100})],
    ),
    ('DELETE FROM s."t.é" WHERE i = 5', [("delete", "s.t%2Eé", {"deleted-records": 1})]),
    ('DELETE FROM s."t.é" WHERE i BETWEEN 6 AND 49', [("delete", "s.t%2Eé", {"deleted-records": 44})]),
    ('DELETE FROM s."t.é" WHERE i BETWEEN 50 AND 69', [("delete", "s.t%2Eé", {"deleted-records": 20})]),
    (
        'UPDATE s."t.é" SET i = -1 WHERE i = 2',
        [("overwrite", "s.t%2Eé", {"added-records": 1, "deleted-records": 1})],
    ),
    ("CREATE VIEW s.v AS SELECT 1 AS a", [("create-view", "s.v", {})]),
    ("CREATE OR REPLACE VIEW s.v AS SELECT 2 AS a", [("alter-view", "s.v", {})]),
    ("ALTER VIEW s.v RENAME TO w", [("rename-view", "s.w", {})]),
    ("COMMENT ON VIEW s.w IS 'x'", [("alter-view", "s.w", {})]),
    ("DROP VIEW s.w", [("drop-view", "s.w", {})]),
    (
        "BEGIN; CREATE TABLE s.a (i INT); ALTER TABLE s.a RENAME TO b; INSERT INTO s.b VALUES (1); COMMIT",
        [("create-table", "s.b", {"added-records": 1})],
    ),
    ("ALTER TABLE s.b RENAME TO c", [("rename-table", "s.c", {})]),
    (
        "CREATE OR REPLACE TABLE s.c AS SELECT 42 AS i",
        [("drop-table", "s.c", {}), ("create-table", "s.c", {"added-records": 1})],
    ),
    (
        "BEGIN; ALTER TABLE s.c ADD COLUMN j INT; INSERT INTO s.c VALUES (1, 2); COMMIT",
        [("alter-table", "s.c", {"added-records": 1})],
    ),
    (
        "CALL ducklake_flush_inlined_data('lake')",
        [("replace", "s.t%2Eé", {"added-data-files": 1}), ("replace", "s.c", {"added-data-files": 2})],
    ),
    (
        "INSERT INTO s.c SELECT i, i FROM range(20) AS r (i)",
        [("append", "s.c", {"added-data-files": 1, "added-records": 20})],
    ),
    (
        "INSERT INTO s.c SELECT i, i FROM range(20) AS r (i)",
        [("append", "s.c", {"added-data-files": 1, "added-records": 20})],
    ),
    ("CALL lake.merge_adjacent_files()", [("replace", "s.c", {"added-data-files": 1})]),
    ("CREATE MACRO s.m(a) AS a + 1", []),
    ('TRUNCATE s."t.é"', [("delete", "s.t%2Eé", {"deleted-data-files": 1, "deleted-records": 36})]),
    ('DROP TABLE s."t.é"', [("drop-table", "s.t%2Eé", {})]),
    ("DROP SCHEMA s CASCADE", [("drop-table", "s.c", {}), ("drop-namespace", "s", {})]),
]


def test_everything_that_duckdb_does_is_reported_with_what_it_changed(services: Services, lake: Lake) -> None:
    at = folded(services)[-1].position
    for statement, expected in DUCKDB:
        lake.run(statement)
        found = folded(services, at)
        assert brief(found) == expected, statement
        at = found[-1].position if found else at
    everything = report(services.database)
    assert [each.snapshot_id for each in everything] == sorted(each.snapshot_id for each in everything)
    assert {(each.source, each.principal, each.request_id) for each in everything} == {("duckdb", None, None)}
    renames = [each.previous for each in everything if each.kind in {ChangeKind.RENAME_TABLE, ChangeKind.RENAME_VIEW}]
    assert renames == ["s.v", "s.b"]
    both = [each.facts["kinds"] for each in everything if "kinds" in each.facts]
    assert both == [["create-table", "append"], ["create-table", "append"], ["alter-table", "append"]]
    made = next(each for each in everything if each.kind == ChangeKind.CREATE_TABLE)
    assert made.facts["schema"]["fields"] == [{"id": 1, "name": "i", "required": False, "type": "int"}]
    assert made.facts["location"].endswith(f"-{str(made.uuid)[-8:]}")


def test_folding_all_at_once_shows_the_same_kinds_in_the_same_order(services: Services, lake: Lake) -> None:
    lake.run(*(statement for statement, _ in DUCKDB))
    expected = [(kind, name) for _, changes in DUCKDB for kind, name, _ in changes]
    assert [(kind, name) for kind, name, _ in brief(folded(services))[1:]] == expected


def test_everything_that_iceberg_clients_do_is_reported_with_who_asked(services: Services, catalog: Catalog) -> None:
    catalog.create_namespace(("a b", "ü.x"))
    catalog.update_namespace_properties(("a b", "ü.x"), set(), {"c": "d"})
    name = ("a b", "ü.x", "t.1")
    table = catalog.create_table(name, NUMBERS)
    rows = pa.table({"i": pa.array(range(60), pa.int32())})
    table.append(rows, snapshot_properties={"ducklake.commit-message": "first load"})
    table.overwrite(rows)
    table.delete("i < 10")
    with table.transaction() as transaction:
        transaction.set_properties({"x": "y"})
    with table.update_schema() as update:
        update.add_column("j", IntegerType())
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_branch(current.snapshot_id, "b").commit()
    table.append(pa.table({"i": pa.array([1] * 30, pa.int32()), "j": pa.array([1] * 30, pa.int32())}), branch="b")
    catalog.rename_table(name, ("a b", "ü.x", "u"))
    catalog.drop_table(("a b", "ü.x", "u"))
    ns, t, u = "a b.ü%2Ex", "a b.ü%2Ex.t%2E1", "a b.ü%2Ex.u"
    found = folded(services)[1:]
    assert brief(found) == [
        ("create-namespace", ns, {}),
        ("update-namespace", ns, {}),
        ("create-table", t, {}),
        ("append", t, {"added-data-files": 1, "added-records": 60}),
        ("delete", t, {"deleted-data-files": 1, "deleted-records": 60}),
        ("append", t, {"added-data-files": 1, "added-records": 60}),
        ("overwrite", t, {"added-data-files": 1, "added-records": 50, "deleted-data-files": 1, "deleted-records": 60}),
        ("update-table", t, {}),
        ("alter-table", t, {}),
        ("update-table", t, {}),
        ("update-table", t, {"added-data-files": 1, "added-records": 30}),
        ("rename-table", u, {}),
        ("drop-table", u, {}),
    ]
    assert {(each.source, each.principal) for each in found} == {("rest", "anonymous")}
    assert all(each.agent is not None and each.agent.startswith("PyIceberg/") and each.request_id for each in found)
    assert found[-2].previous == t
    overwritten = found[4:6]
    assert len({each.request_id for each in overwritten}) == 1, "a request with two snapshots"
    listed = [each.iceberg_snapshot_id for each in found if each.iceberg_snapshot_id is not None]
    assert len(set(listed)) == 5
    assert found[3].facts["summary"]["operation"] == "append"
    assert [each.facts["message"] for each in found if "message" in each.facts] == ["first load"]
    assert [str(each.position).partition(".")[2] for each in found] == [*"0100000101000"]


def test_commits_of_ours_have_ducklakes_author_and_message(catalog: Catalog, lake: Lake) -> None:
    table = catalog.create_table("main.t", NUMBERS)
    rows = pa.table({"i": pa.array(range(60), pa.int32())})
    table.append(rows)
    table.overwrite(rows, snapshot_properties={"ducklake.commit-message": "every night"})
    lake.run("BEGIN; CALL lake.set_commit_message('ann', 'by hand'); INSERT INTO t VALUES (1); COMMIT")
    signed = lake.duck.sql(
        "SELECT author, commit_message, commit_extra_info IS NOT NULL"
        " FROM ducklake_snapshots('lake') ORDER BY snapshot_id"
    ).fetchall()
    agent = f"PyIceberg/{pyiceberg.__version__}"
    assert signed[1:] == [
        ("anonymous", f"create_table by {agent}", False),
        ("anonymous", f"append by {agent}", True),
        ("anonymous", "every night", True),
        ("anonymous", "every night", True),
        ("ann", "by hand", False),
    ]
    (native,) = folded(lake.services)[-1:]
    assert (native.facts["author"], native.facts["message"]) == ("ann", "by hand")


def test_rows_of_several_requests_in_one_snapshot_are_one_change_that_names_them(
    services: Services, lake: Lake
) -> None:
    lake.run("CREATE TABLE t (i INT)")
    posted = [PostedRows(("main",), "t", b'[{"i": 1}, {"i": 2}]', "application/json") for _ in range(20)]
    threads = [Thread(target=append_rows, args=(services, each)) for each in posted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    appends = [each for each in folded(services) if each.kind == ChangeKind.APPEND]
    assert sum(each.facts["metrics"]["added-records"] for each in appends) == 40
    assert sum(len(each.facts.get("requests", [1])) for each in appends) == 20


def test_changes_without_snapshot_stand_after_the_last_snapshot_before_them(
    services: Services, catalog: Catalog, lake: Lake
) -> None:
    table = catalog.create_table("main.t", NUMBERS)
    _set(table, "0")
    _set(table, "1")
    lake.run("INSERT INTO t VALUES (1)")
    _set(table, "2")
    lake.run("INSERT INTO t VALUES (2)")
    found = folded(services)[1:]
    assert [(str(each.position), each.kind) for each in found] == [
        ("1.0", ChangeKind.CREATE_TABLE),
        ("1.1", ChangeKind.UPDATE_TABLE),
        ("1.2", ChangeKind.UPDATE_TABLE),
        ("2.0", ChangeKind.APPEND),
        ("2.1", ChangeKind.UPDATE_TABLE),
        ("3.0", ChangeKind.APPEND),
    ]
    _set(table, "3")
    catalog.load_table("main.t")
    assert [str(each.position) for each in folded(services, found[-1].position)] == ["3.1"]
    _set(table, "4")
    assert [str(each.position) for each in folded(services, LogPosition(3, 1))] == ["3.2"]
    with services.database.reading() as cursor:
        assert read_newest_position(cursor) == LogPosition(3, 2)


def _set(table: Table, value: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"n": value})


def test_what_was_expired_before_it_was_seen_is_left_out_and_the_rest_is_reported(
    services: Services, lake: Lake
) -> None:
    lake.run("CREATE TABLE t (i INT)", "CREATE TABLE gone (i INT)", *["INSERT INTO t FROM range(50)"] * 5)
    write_all_changes(services)
    lake.run("DROP TABLE gone", "INSERT INTO t FROM range(50)", "DELETE FROM t WHERE i < 40")
    lake.run("INSERT INTO t VALUES (7)")
    lake.run(f"CALL ducklake_expire_snapshots('lake', versions => [{', '.join(map(str, range(8)))}])")
    before = report(services.database)
    found = folded(services)
    assert found[: len(before)] == before
    assert brief(found[len(before) :]) == [
        ("drop-table", "main.gone", {}),
        ("append", "main.t", {"added-data-files": 1, "added-records": 50}),
        ("delete", "main.t", {"deleted-records": 240}),
        ("append", "main.t", {"added-records": 1}),
    ]


def test_hole_of_expired_snapshots_attributes_no_files_to_the_next_one(services: Services, lake: Lake) -> None:
    lake.run("CREATE TABLE t (i INT)")
    write_all_changes(services)
    first = lake.newest()
    lake.run(*["INSERT INTO t FROM range(50)"] * 3, "INSERT INTO t FROM range(20)")
    lake.run(f"CALL ducklake_expire_snapshots('lake', versions => [{first + 1}, {first + 2}, {first + 3}])")
    (last,) = folded(services, LogPosition(first, LAST_ORDINAL))
    assert brief([last]) == [("append", "main.t", {"added-data-files": 1, "added-records": 20})]


def test_lake_with_more_old_snapshots_than_a_fold_takes_is_folded_to_its_end(services: Services, lake: Lake) -> None:
    lake.run("CREATE TABLE t (i INT)")
    count = 2 * MAX_BATCH_SNAPSHOTS + 500
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO ducklake_snapshot SELECT 1 + i, now() + i * interval '1 ms', 1, 2, i"
            " FROM generate_series(1, %s) AS i",
            [count],
        )
        cursor.execute(
            "INSERT INTO ducklake_snapshot_changes SELECT 1 + i, 'inserted_into_table:1'"
            " FROM generate_series(1, %s) AS i",
            [count],
        )
        cursor.execute(
            "INSERT INTO ducklake_data_file SELECT i - 1, 1, 1 + i, NULL, NULL, i || '.parquet', true, 'parquet', i, 1,"
            " 1, 0, NULL, NULL, NULL, NULL FROM generate_series(1, %s) AS i",
            [count],
        )
    found = folded(services)
    assert [each.facts["metrics"]["added-records"] for each in found[2:]] == list(range(1, count + 1))
    with services.database.reading() as cursor:
        assert read_newest_position(cursor) == LogPosition(count + 1, 0)
        assert read_oldest(cursor) == LogPosition(0, 0)


def test_rows_of_ducklake_that_make_no_sense_stop_no_one(services: Services, lake: Lake) -> None:
    lake.run("CREATE TABLE t (i INT)")
    words = f"created_table:t,dropped_table:x,inserted_into_table:1,altered_table:{'9' * 30},dropped_schema:77"
    with services.database.transaction() as cursor:
        cursor.execute("INSERT INTO ducklake_snapshot VALUES (2, NULL, 1, 2, 5), (3, now(), 1, 2, NULL)")
        cursor.execute("INSERT INTO ducklake_snapshot_changes VALUES (2, %s), (3, 'nonsense')", [words])
        cursor.execute("INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot) VALUES (2, 1, 2)")
    assert brief(folded(services)[2:]) == [
        ("create-table", "t.", {}),
        ("append", "main.t", {"added-data-files": 1, "added-records": 0}),
    ]


def test_old_changes_can_be_pruned_and_the_rest_stays_where_it_is(services: Services, lake: Lake) -> None:
    lake.run("CREATE TABLE t (i INT)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)")
    whole = folded(services)
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_change SET at = at - interval '100 days' WHERE snapshot_id < 2")
    assert prune_entries(services.database, datetime.now(UTC) - timedelta(days=90), batch=1) == 2
    assert folded(services) == whole[2:]
    with services.database.reading() as cursor:
        assert read_oldest(cursor) == whole[2].position
        assert read_latest(cursor, END_POSITION, 1) == whole[-1:]


def test_positions_are_spelled_and_read() -> None:
    assert str(LogPosition.parse("17.3")) == "17.3"
    assert LogPosition.parse("17.3") < LogPosition.parse("17") < LogPosition.parse("18.0")
    for text in ("", "x", "17.", ".1", "-1", "17.1.1", "\N{ARABIC-INDIC DIGIT ONE}", "9" * 40):
        with pytest.raises(InvalidRequestError):
            LogPosition.parse(text)


def test_follower_hears_of_commits_of_duckdb_and_shows_who_listens(services: Services, lake: Lake) -> None:
    failures: list[Exception] = []
    with (
        follow_in_background(services, failures.append),
        services.database.open_listener("duckicelake_change").connect() as cursor,
    ):
        lake.run("CREATE TABLE t (i INT)")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not any(
            each.name == "t" for each in read_changes(cursor, START_POSITION, 10)
        ):
            time.sleep(0.005)
        began = time.monotonic()
        lake.run("INSERT INTO t VALUES (1)")
        while not any(each.kind == ChangeKind.APPEND for each in read_changes(cursor, START_POSITION, 10)):
            time.sleep(0.005)
        assert time.monotonic() - began < 2, "it was notified, and didn't look by itself"
    assert failures == []


def test_fold_knows_whether_someone_waits_for_what_comes_next(services: Services, lake: Lake) -> None:
    database = services.database
    with database.open_listener("x").connect() as cursor:
        assert not write_new_changes(services, cursor).is_awaited
        with database.open_listener("y").connect() as reader:
            await_changelog(reader)
            assert write_new_changes(services, cursor).is_awaited
        lake.run("CREATE TABLE t (i INT)")
        while write_new_changes(services, cursor).is_awaited:
            time.sleep(0.01)  # until Postgres has noticed that the reader's session is over


def test_request_is_notified_of_what_it_names_in_whichever_snapshot_of_its_transaction() -> None:
    a, b = (AuditedRequest("p", name, "commit", f"main.{name}", None, None) for name in "ab")
    at = datetime.now(UTC)
    first, last = (LakeSnapshot(number, at, 0, None, None, None, [], [entry]) for number, entry in ((1, a), (2, b)))
    alone = LakeSnapshot(3, at + timedelta(seconds=1), 0, None, None, None, [], [a])
    requests = SnapshotRequests([first, last, alone])
    of_a, of_b = (ChangedObject((ChangeKind.APPEND,), "main", name) for name in "ab")
    assert [requests.of(first, of_a), requests.of(first, of_b), requests.of(last, of_a)] == [[a], [b], [a]]
    assert requests.of(alone, of_b) == [a], "what nobody names came with what somebody did"


def test_what_can_not_be_folded_is_left_out_in_the_end_and_all_else_is_reported(services: Services, lake: Lake) -> None:
    lake.run("CREATE TABLE t (i INT)", *["INSERT INTO t FROM range(50)"] * 4)
    last = lake.newest()
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_snapshot SET snapshot_time = 'infinity' WHERE snapshot_id = %s", [last - 2])
    failures: list[Exception] = []
    follower = ChangelogWriter(services, failures.append)
    with services.database.open_listener(None).connect() as cursor:
        for _ in range(MAX_TRIES):
            with pytest.raises(psycopg.DataError):
                follower.fold(cursor)
        assert report(services.database) == []
        follower.fold(cursor)
    (failure,) = failures
    assert str(failure).startswith(f"the changelog has skipped snapshot {last - 2}: DataError")
    kinds = [(each.snapshot_id, each.kind.value) for each in report(services.database) if each.name == "t"]
    assert kinds == [(1, "create-table"), *((each, "append") for each in (last - 3, last - 1, last))]


KILLS = 12


def test_every_change_is_reported_once_however_many_follow_and_are_killed(
    services: Services, attach: Attach, database_url: str, warehouse: Path
) -> None:
    ducks = [attach() for _ in range(2)]
    ducks[0].execute("CREATE TABLE a (i INT); CREATE TABLE b (i INT)")
    for duck in ducks:
        duck.execute("SET ducklake_max_retry_count = 100")  # of three writers on a busy machine one may lose ten times
    ended, seen = Event(), list[LoggedChange]()
    writers = [
        *(Thread(target=_insert, args=(duck, name, ended)) for duck, name in zip(ducks, "ab", strict=True)),
        Thread(target=_post, args=(services, ended)),
    ]
    reader = Thread(target=_tail, args=(services.database, seen, ended))
    for thread in (*writers, reader):
        thread.start()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    random = Random(7)
    for _ in range(KILLS):
        begun, begins = processes.Pipe(duplex=False)
        both = [processes.Process(target=_follow, args=(database_url, str(warehouse), begins)) for _ in range(2)]
        with begun, begins:
            for process in both:
                process.start()
            for _process in both:
                assert begun.poll(60)
                begun.recv()
        time.sleep(random.uniform(0.1, 0.5))
        for process in both:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
    ended.set()
    for thread in (*writers, reader):
        thread.join()
    by_the_killed = len(seen)
    everything = folded(services)
    _tail(services.database, seen, ended)
    assert seen == everything, "a row came before one that was readable"
    with services.database.reading() as cursor:
        recorded = cursor.execute(
            "SELECT snapshot_id FROM ducklake_snapshot_changes WHERE changes_made IS NOT NULL ORDER BY 1"
        ).fetchall()
    assert [(each.snapshot_id,) for each in everything] == recorded
    assert len(recorded) >= by_the_killed > KILLS


def _insert(duck: duckdb.DuckDBPyConnection, name: str, ended: Event) -> None:
    while not ended.is_set():
        duck.execute(f"INSERT INTO {name} VALUES (1)")
        ended.wait(0.02)


def _post(services: Services, ended: Event) -> None:
    while not ended.is_set():
        append_rows(services, PostedRows(("main",), "a", b'[{"i": 1}]', "application/json"))
        ended.wait(0.02)


def _tail(database: Database, seen: list[LoggedChange], ended: Event) -> None:
    """Read what is new, as subscribers do, until it is over, and once more."""
    while True:
        is_last = ended.is_set()
        seen += report(database, seen[-1].position if seen else START_POSITION)
        if is_last:
            return
        time.sleep(0.002)


def _follow(url: str, warehouse: str, begins: Connection) -> None:
    """Until it is killed; when it begins is told."""
    with (
        closing(open_lake_database(url, 2)) as database,
        database.open_listener("duckicelake_snapshot").connect() as cursor,
    ):
        services = services_of(database, Path(warehouse))
        begins.send(None)
        while True:
            write_new_changes(services, cursor)


def test_another_follower_takes_over_when_the_first_has_gone(services: Services, lake: Lake) -> None:
    failures: list[Exception] = []
    with follow_in_background(services, failures.append):
        with follow_in_background(services, failures.append):
            _wait_for(services, lake, "a")
        _wait_for(services, lake, "b")
    with follow_in_background(services, failures.append):
        _wait_for(services, lake, "c")
    assert failures == []


def _wait_for(services: Services, lake: Lake, name: str) -> None:
    """Until the creation of a table is told."""
    lake.run(f"CREATE TABLE {name} (i INT)")
    deadline = time.monotonic() + 10
    while not any(each.name == name for each in report(services.database)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
