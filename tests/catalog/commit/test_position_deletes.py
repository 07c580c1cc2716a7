"""Position deletes of Iceberg clients and of DuckDB on the same rows: both sides read the same rows afterwards."""

from collections.abc import Callable

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitFailedError
from duckicelake.iceberg.manifest.entry import FileContent, ManifestContent
from tests.support.client import (
    Client,
    Draft,
    Json,
    Row,
    append,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    live,
    local,
    pyiceberg_rows,
    remove,
)
from tests.support.seams import fresh

ROWS: list[Row] = [(number, f"r{number}") for number in range(40)]
Check = Callable[[list[Row]], Json]


@pytest.fixture
def check(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Check:
    """The loaded table, once PyIceberg and DuckDB read exactly these rows from it, filtered and counted too."""

    def holds(expected: list[Row]) -> Json:
        answer = Client(fresh(services)).load()
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == sorted(expected)
        (count,) = ducklake.sql("SELECT count(*) FROM lake.ns.t").fetchone() or (None,)
        assert count == len(expected)
        for number, name in expected[:2]:
            assert ducklake.sql(f"SELECT name FROM lake.ns.t WHERE id = {number}").fetchall() == [(name,)]
        assert_whole(answer)
        metadata: Json = answer["metadata"]
        return metadata

    return holds


def without(rows: list[Row], *ids: int) -> list[Row]:
    return [row for row in rows if row[0] not in ids]


def test_one_delete_file_for_several_data_files(client: Client, check: Check) -> None:
    client.create()
    client.append(*ROWS[:20])
    metadata = client.append(*ROWS[20:])["metadata"]
    first, second = data_files(metadata)
    client.commit(delete(metadata, (first, 0), (first, 19), (second, 5), ("file:///nowhere/else.parquet", 1)))
    check(without(ROWS, 0, 19, 25))


def test_deletes_of_several_commits_add_up(client: Client, check: Check) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    metadata = client.commit(delete(metadata, (path, 1), (path, 2)))["metadata"]
    metadata = client.commit(delete(metadata, (path, 2), (path, 3)))["metadata"]
    check(without(ROWS, 1, 2, 3))
    client.commit(delete(metadata, *((path, position) for position in range(40))))
    check([])
    client.append((99, "after"))
    check([(99, "after")])


def test_client_deletes_after_duckdb_deleted_in_the_same_file(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    (path,) = data_files(client.append(*ROWS)["metadata"])
    ducklake.execute("DELETE FROM lake.ns.t WHERE id IN (3, 4)")
    check(without(ROWS, 3, 4))
    client.commit(delete(client.metadata(), (path, 5), (path, 3)))
    check(without(ROWS, 3, 4, 5))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id BETWEEN 10 AND 30")
    check(without(ROWS, 3, 4, 5, *range(10, 31)))
    client.commit(delete(client.metadata(), (path, 0)))
    check(without(ROWS, 0, 3, 4, 5, *range(10, 31)))


def test_duckdb_deletes_after_a_client_deleted_in_the_same_file(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    client.commit(delete(metadata, (path, 7), (path, 8)))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id BETWEEN 8 AND 20")
    check(without(ROWS, *range(7, 21)))
    ducklake.execute("UPDATE lake.ns.t SET name = 'updated' WHERE id = 1")
    check([*without(ROWS, 1, *range(7, 21)), (1, "updated")])
    ducklake.execute("DELETE FROM lake.ns.t")
    check([])


def test_deletes_of_inlined_rows_end_them_in_postgres(
    services: Services, client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    metadata = client.metadata()
    (virtual,) = data_files(metadata)
    client.commit(delete(metadata, (virtual, 1)))
    check([(1, "a"), (3, "c")])
    with services.database.reading() as cursor:
        (name,) = cursor.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchone() or ("",)
        ended = cursor.execute(f'SELECT id FROM "{name}" WHERE end_snapshot IS NOT NULL').fetchall()
    assert ended == [(2,)]
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    check([(3, "c")])
    ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
    check([(3, "c")])
    client.append((4, "d"))
    check([(3, "c"), (4, "d")])


def test_removed_virtual_file_ends_its_inlined_rows(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'a'), (2, 'b')")
    client.load()
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'c')")
    metadata = client.metadata()
    client.commit(remove(metadata, data_files(metadata)[0]))
    check([(3, "c")])


def test_deletes_in_a_virtual_file_and_a_real_one_at_once(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append(*ROWS)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'inlined'), (101, 'inlined')")
    metadata = client.metadata()
    real, virtual = data_files(metadata)
    client.commit(delete(metadata, (real, 0), (virtual, 0)))
    check([*without(ROWS, 0), (101, "inlined")])
    ducklake.execute("DELETE FROM lake.ns.t WHERE id IN (1, 101)")
    check(without(ROWS, 0, 1))


def test_delete_of_an_inlined_row_that_duckdb_has_flushed_is_a_conflict(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'a'), (2, 'b')")
    metadata = client.metadata()
    (virtual,) = data_files(metadata)
    ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
    with pytest.raises(CommitFailedError):
        client.commit(delete(metadata, (virtual, 1)))
    check([(1, "a"), (2, "b")])


def test_delete_and_new_file_in_one_snapshot(client: Client, check: Check) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    draft = Draft(metadata, operation="overwrite")
    deletes = draft.manifest([draft.delete_file([(path, 1), (path, 2)])])
    client.commit(draft.body([draft.manifest([draft.data_file([(1, "changed")])]), deletes, *draft.parent_manifests]))
    check([(1, "changed"), *without(ROWS, 1, 2)])


def test_delete_file_that_names_a_data_file_of_its_own_snapshot(client: Client, check: Check) -> None:
    client.create()
    draft = Draft(client.append(*ROWS)["metadata"], operation="overwrite")
    new = draft.data_file([(50, "x"), (51, "y")])
    deletes = draft.manifest([draft.delete_file([(new.file_path, 0)])])
    client.commit(draft.body([draft.manifest([new]), deletes, *draft.parent_manifests]))
    check([*ROWS, (51, "y")])


def test_data_file_leaves_together_with_its_delete_file(client: Client, check: Check) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    metadata = client.commit(delete(metadata, (path, 1)))["metadata"]
    draft = Draft(metadata, operation="replace")
    client.commit(draft.body([draft.manifest([draft.data_file(without(ROWS, 1))])]))
    found = check(without(ROWS, 1))
    contents = {line.content for line in Draft(found).parent_manifests if live(line)}
    assert contents == {ManifestContent.DATA}


def test_client_compacts_delete_files_into_one(client: Client, check: Check) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    metadata = client.commit(delete(metadata, (path, 1)))["metadata"]
    metadata = client.commit(delete(metadata, (path, 2)))["metadata"]
    draft = Draft(metadata, operation="replace")
    kept = [line for line in draft.parent_manifests if line.content is ManifestContent.DATA]
    client.commit(draft.body([draft.manifest([draft.delete_file([(path, 1), (path, 2)])]), *kept]))
    found = check(without(ROWS, 1, 2))
    deletes = [e for line in Draft(found).parent_manifests for e in live(line) if e.data_file.content]
    assert [entry.data_file.content for entry in deletes] == [FileContent.POSITION_DELETES]


def test_rows_come_back_when_their_delete_file_is_removed(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    row_ids = ducklake.sql("SELECT id, rowid FROM lake.ns.t WHERE id <> 1 ORDER BY id").fetchall()
    client.commit(delete(metadata, (path, 1)))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 5")
    loaded = Draft(client.metadata(), operation="overwrite")
    ours, theirs = (
        [line for line in loaded.parent_manifests if (line.added_snapshot_id == loaded.parent) == native]
        for native in (True, False)
    )
    kept = [line for line in (*ours, *theirs) if line.content is ManifestContent.DATA or line in ours]
    client.commit(loaded.body(kept))
    check(without(ROWS, 5))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    check(without(ROWS, 1, 5))
    draft = Draft(client.metadata(), operation="overwrite")
    client.commit(draft.body([line for line in draft.parent_manifests if line.content is ManifestContent.DATA]))
    check(ROWS)
    assert ducklake.sql("SELECT id, rowid FROM lake.ns.t WHERE id <> 1 ORDER BY id").fetchall() == row_ids


def test_old_snapshots_keep_their_rows_through_all_deletes(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    client.commit(delete(metadata, (path, 1)))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 2")
    client.commit(delete(client.metadata(), (path, 3)))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 4")
    answer = client.load()
    snapshots = answer["metadata"]["snapshots"]
    for count, snapshot in enumerate(snapshots):
        expected = without(ROWS, *range(1, count + 1))
        number = snapshot["summary"]["ducklake.snapshot-id"]
        assert pyiceberg_rows(answer, snapshot["snapshot-id"]) == sorted(expected)
        at = f"SELECT id, name FROM lake.ns.t AT (VERSION => {number}) ORDER BY ALL"
        assert ducklake.sql(at).fetchall() == sorted(expected)


def test_delete_file_written_as_a_plain_path_deletes_in_duckdbs_files(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'r' || range FROM range(40)")
    metadata = client.metadata()
    (path,) = data_files(metadata)
    assert local(path).is_file()
    client.commit(delete(metadata, (path, 0), (path, 39)))
    check(without(ROWS, 0, 39))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id < 5")
    check(without(ROWS, 0, 1, 2, 3, 4, 39))


def test_stale_delete_in_a_file_that_duckdb_rewrote_is_a_conflict(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append(*ROWS[:20])
    metadata = client.append(*ROWS[20:])["metadata"]
    ducklake.execute("CALL ducklake_merge_adjacent_files('lake')")
    body = delete(metadata, (data_files(metadata)[0], 1))
    try:
        client.commit(body)
    except CommitFailedError:
        check(ROWS)
    else:
        check(without(ROWS, 1))


def test_append_keeps_deletes_of_before(client: Client, check: Check) -> None:
    client.create()
    metadata = client.append(*ROWS[:20])["metadata"]
    (path,) = data_files(metadata)
    metadata = client.commit(delete(metadata, (path, 1)))["metadata"]
    client.commit(append(metadata, *ROWS[20:]))
    check(without(ROWS, 1))


def test_sequence_number_of_a_delete_file_is_its_snapshots(client: Client) -> None:
    client.create()
    metadata = client.append(*ROWS)["metadata"]
    (path,) = data_files(metadata)
    answer = client.commit(delete(metadata, (path, 1)))["metadata"]
    entries = [entry for line in Draft(answer).parent_manifests for entry in live(line)]
    numbers = {entry.data_file.content: (entry.sequence_number, entry.file_sequence_number) for entry in entries}
    assert numbers == {FileContent.DATA: (1, 1), FileContent.POSITION_DELETES: (2, 2)}
