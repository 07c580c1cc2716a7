"""The Delta log of a table that Iceberg clients write, roll back and expire, beside DuckDB; and of one that dies."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import duckdb
import pytest
from duckdb_extensions import import_extension

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.export.exporter import update_delta_log
from duckicelake.delta.export.files import remove_log, repair_log
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import AlreadyExistsError
from duckicelake.storage.policy import canonicalize
from tests.delta.export.readers import assert_read_alike, keep, read_by, rows_of, versions
from tests.support.client import NS
from tests.support.foreign_catalog import register, unregister
from tests.support.lakes import Lake
from tests.support.seams import Fuse, FusedDatabase, FusedStore, Killed, fresh
from tests.support.table_history import FLUSH, MERGE, History

SECOND = pytest.mark.parametrize("history", ["client-2"], indirect=True)
THIRD = pytest.mark.parametrize("history", ["ducklake-3"], indirect=True)
ENABLE = {"action": "set-properties", "updates": {"delta.enabled": "true"}}


@pytest.fixture(scope="module")
def delta() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with its delta extension."""
    import_extension("delta")
    connection = duckdb.connect(config={"threads": 2, "allow_unsigned_extensions": True})
    yield connection.execute("LOAD delta")
    connection.close()


@pytest.fixture
def lake(history: History) -> Lake:
    history.update(ENABLE)
    return Lake(history.services, history.duck)


def files_of(root: str) -> dict[str, bytes]:
    folder = Path(root.removeprefix("file://"))
    found = (path for name in ("_delta_log", "_delta_vectors") for path in (folder / name).glob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_all_that_iceberg_clients_do(history: History, lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    first = history.append()
    keep(lake, namespace="ns")
    history.append()
    history.delete("main", [1, 4])
    history.delete("main", [2])
    history.insert(3)
    history.delete_in_duckdb(history.ids()[-1:])
    seen = assert_read_alike(lake, delta, namespace="ns")
    assert len(seen) == 6
    history.overwrite("main", [5])
    history.set_ref("main", first)
    history.append()
    history.duckdb(FLUSH)
    history.compact("main")
    history.append("side")
    history.duckdb(MERGE)
    again = assert_read_alike(lake, delta, namespace="ns")
    assert seen.items() <= again.items()
    log = DeltaLog(lake.services.store, keep(lake, namespace="ns").root)
    operations = [commit.operation for commit in log.commits(-1, log.newest())]
    assert operations[:4] == ["WRITE", "WRITE", "DELETE", "DELETE"]
    rewritten = [commit for commit in log.commits(-1, log.newest()) if commit.operation == "OPTIMIZE"]
    assert rewritten
    assert not any(add.data_change for commit in rewritten for add in commit.adds)


def test_versions_leave_with_their_snapshots(history: History, lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    for _ in range(3):
        history.append()
        history.delete("main", history.ids()[-1:])
        keep(lake, namespace="ns")
    seen = assert_read_alike(lake, delta, namespace="ns")
    expired = sorted(history.snapshot_ids() - {history.head()}, key=lambda id_: list(history.shown).index(id_))[:4]
    history.expire(expired)
    history.clean_in_duckdb()
    log = keep(lake, namespace="ns")
    again = assert_read_alike(lake, delta, namespace="ns")
    assert min(again) == log.oldest > 0
    assert again.items() <= seen.items()
    assert {f"_delta_log/{version:020}.json" for version in again} <= files_of(log.root).keys()
    assert f"_delta_log/{log.oldest - 1:020}.json" not in files_of(log.root)
    history.append()
    assert_read_alike(lake, delta, namespace="ns")


@THIRD
def test_server_that_dies_anywhere_leaves_the_same_log(history: History, lake: Lake) -> None:
    history.append()
    history.delete("main", [1])
    services, left = lake.services, 0
    keep(lake, namespace="ns")
    history.append()
    history.delete("main", history.ids()[-2:])
    while True:
        fuse = Fuse(left)
        dying = replace(
            fresh(services), store=FusedStore(services.store, fuse), database=FusedDatabase(services.database, fuse)
        )
        try:
            table = load_current_table(dying, NS, "t")
            update_delta_log(dying, table)
            break
        except Killed:
            left += 3
    log = keep(lake, namespace="ns")
    files = files_of(log.root)
    again = DeltaLog(services.store, log.root)
    assert [commit.version for commit in again.commits(-1, log.version)] == list(range(log.version + 1))
    for name in files:
        if not name.endswith("_last_checkpoint"):
            Path(log.root.removeprefix("file://"), name).unlink()
    repair_log(services, load_current_table(services, NS, "t").row.table_id)
    assert files_of(log.root) == files


@SECOND
def test_two_workers_write_the_same(history: History, lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    keep(lake, namespace="ns")
    for _ in range(4):
        history.append()
    history.delete("main", [1])
    start, errors = Barrier(2), []

    def work(services: Services) -> None:
        try:
            table = load_current_table(services, NS, "t")
            start.wait()
            update_delta_log(services, table)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [Thread(target=work, args=(fresh(lake.services),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [each.version for each in versions(lake)] == list(range(6))
    assert_read_alike(lake, delta, namespace="ns")


@SECOND
def test_worker_that_is_behind_adds_nothing(history: History, lake: Lake) -> None:
    keep(lake, namespace="ns")
    history.append()
    behind = load_current_table(lake.services, NS, "t")
    history.append()
    keep(lake, namespace="ns")
    assert update_delta_log(lake.services, behind).version == 2


@SECOND
def test_log_begins_anew_where_the_table_moves(history: History, lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    history.append()
    before = keep(lake, namespace="ns")
    moved = f"{history.metadata()['location']}-moved"
    history.update({"action": "set-location", "location": moved})
    history.append()
    assert_read_alike(lake, delta, namespace="ns")
    assert files_of(before.root) == {}
    assert keep(lake, namespace="ns").root == canonicalize(moved)


@SECOND
def test_log_is_taken_away_and_begun_again(history: History, lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    history.append()
    before = keep(lake, namespace="ns")
    remove_log(lake.services, load_current_table(lake.services, NS, "t").row.table_id)
    assert files_of(before.root) == {}
    assert_read_alike(lake, delta, namespace="ns")
    Path(before.root.removeprefix("file://"), "_delta_log", f"{0:020}.json").write_text('{"commitInfo":{}}\n')
    with lake.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_delta_log")
        cursor.execute("DELETE FROM duckicelake_delta_version")
    with pytest.raises(AlreadyExistsError, match="of another writer"):
        keep(lake, namespace="ns")


@SECOND
@pytest.mark.parametrize("lost", [b"{}", None], ids=["of another length", "of the same length"])
def test_log_begins_anew_where_a_restored_postgres_lacks_versions_of_it(
    history: History, lake: Lake, delta: duckdb.DuckDBPyConnection, lost: bytes | None
) -> None:
    history.append()
    before = keep(lake, namespace="ns")
    history.delete("main", history.ids()[:1])
    keep(lake, namespace="ns")
    for name, data in files_of(before.root).items():
        if name.endswith("1.json"):
            Path(before.root.removeprefix("file://"), name).write_bytes(
                lost or data.replace(b"duckicelake", b"DUCKICELAKE")
            )
    with lake.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_delta_version SET is_written = false")
        cursor.execute("UPDATE duckicelake_delta_log SET is_looked_at = false")
    history.append()
    assert_read_alike(lake, delta, namespace="ns")
    assert keep(lake, namespace="ns").metadata["id"] != before.metadata["id"]


@SECOND
def test_log_of_a_table_that_is_registered_again_is_another_one(history: History, lake: Lake) -> None:
    """Both tables are of version 0, and of the same UUID."""
    ids = []
    for _ in range(2):
        history.append()
        register(history.client, unregister(history.client)["metadata-location"], "t")
        ids.append(keep(lake, namespace="ns").metadata["id"])
    assert ids[0] != ids[1]


@THIRD
def test_long_log_has_checkpoints(history: History, lake: Lake, delta: duckdb.DuckDBPyConnection) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("duckicelake.delta.export.files.CHECKPOINT_VERSIONS", 2)
        for _ in range(5):
            history.append()
            history.delete("main", history.ids()[-1:])
            keep(lake, namespace="ns")
        seen = assert_read_alike(lake, delta, namespace="ns")
        log = keep(lake, namespace="ns")
    names = files_of(log.root)
    assert f"_delta_log/{4:020}.checkpoint.parquet" in names
    for version in range(4):
        Path(log.root.removeprefix("file://"), "_delta_log", f"{version:020}.json").unlink()
    assert DeltaLog(lake.services.store, log.root).oldest() == 4
    for who, found in read_by(delta, log, log.version):
        assert rows_of(found) == seen[log.version], who


@SECOND
def test_counts_of_applications_are_transactions(history: History, lake: Lake) -> None:
    draft = history.draft("main", "append")
    summary = {"operation": "append", "txn.app-id": "stream", "txn.version": "7", "delta.txn.other": "3"}
    body = draft.body([draft.manifest([draft.data_file([(1, "a")])])], summary=summary)
    history.client.commit(body)
    log = DeltaLog(lake.services.store, keep(lake, namespace="ns").root)
    assert {name: txn.version for name, txn in log.snapshot().txns.items()} == {"stream": 7, "other": 3}
