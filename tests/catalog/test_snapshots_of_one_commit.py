"""What a reviewer found who wanted to lose or corrupt data: each once made the two sides disagree."""

from dataclasses import replace
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table import catch_up as catching_up
from duckicelake.catalog.table.catch_up import catch_up
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequest, NoSuchTable
from duckicelake.iceberg.manifest.entry import EntryStatus, ManifestEntry, ManifestFile
from duckicelake.lake.writer import tables as lake_tables
from tests.catalog.client import (
    NS,
    Client,
    Draft,
    Json,
    assert_whole,
    data_files,
    duckdb_rows,
    pyiceberg_rows,
)
from tests.catalog.client import append as append_body
from tests.catalog.client import delete as delete_body
from tests.support.lakes import Lake, iceberg_rows


def on_top(first: Draft, first_list: str) -> Json:
    """The metadata as the client sees it after its first snapshot of a request."""
    snapshot = {"snapshot-id": first.snapshot_id, "manifest-list": first_list, "summary": {"operation": "delete"}}
    return {
        **first.metadata,
        "current-snapshot-id": first.snapshot_id,
        "refs": {"main": {"snapshot-id": first.snapshot_id, "type": "branch"}},
        "last-sequence-number": first.sequence_number,
        "snapshots": [*first.metadata.get("snapshots", ()), snapshot],
    }


def settled(draft: Draft, manifests: list[ManifestFile]) -> list[ManifestFile]:
    """The manifests of a snapshot as the next one lists them."""
    number = draft.sequence_number
    return [
        replace(line, sequence_number=number, min_sequence_number=number)
        if line.added_snapshot_id == draft.snapshot_id
        else line
        for line in manifests
    ]


def both(first: Json, second: Json) -> Json:
    return {"requirements": first["requirements"], "updates": [*first["updates"], *second["updates"]]}


def test_two_snapshots_of_one_commit_delete_from_the_same_file(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    metadata = client.append((1, "a"), (2, "b"), (3, "c"))["metadata"]
    (path,) = data_files(metadata)
    first = Draft(metadata, operation="delete")
    first_manifests = [first.manifest([first.delete_file([(path, 0)])]), *first.parent_manifests]
    first_list = first.manifest_list(first_manifests)
    second = Draft(on_top(first, first_list), operation="delete")
    second_list = [second.manifest([second.delete_file([(path, 1)])]), *settled(first, first_manifests)]
    answer = client.commit(both(first.body(first_list), second.body(second.manifest_list(second_list))))
    assert pyiceberg_rows(answer) == [(3, "c")]
    assert duckdb_rows(ducklake) == [(3, "c")]


def test_a_second_snapshot_deletes_from_a_file_of_the_first(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    metadata = client.metadata()
    first = Draft(metadata)
    file = first.data_file([(1, "a"), (2, "b")])
    first_manifests = [first.manifest([file])]
    first_list = first.manifest_list(first_manifests)
    second = Draft(on_top(first, first_list), operation="delete")
    second_list = [second.manifest([second.delete_file([(file.file_path, 0)])]), *settled(first, first_manifests)]
    answer = client.commit(both(first.body(first_list), second.body(second.manifest_list(second_list))))
    assert pyiceberg_rows(answer) == [(2, "b")]
    assert duckdb_rows(ducklake) == [(2, "b")]


def test_a_snapshot_without_a_parent_may_keep_manifests(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    metadata = client.append((1, "a"))["metadata"]
    body = append_body(metadata, (2, "b"))
    body["updates"][0]["snapshot"]["parent-snapshot-id"] = None
    answer = client.commit(body)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(1, "a"), (2, "b")]


def test_a_file_added_twice(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    draft = Draft(client.metadata())
    file = draft.data_file([(1, "a"), (2, "b")])
    metadata = client.commit(draft.body([draft.manifest([file])]))["metadata"]
    again = Draft(metadata)
    metadata = client.commit(again.body([again.manifest([file]), *again.parent_manifests]))["metadata"]
    answer = client.commit(delete_body(metadata, (file.file_path, 0)))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)


def test_a_delete_file_older_than_the_data_file(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    client.append((1, "a"))
    metadata = client.append((2, "b"), (3, "c"))["metadata"]
    path = data_files(metadata)[-1]
    draft = Draft(metadata, operation="delete")
    entry = ManifestEntry(EntryStatus.ADDED, draft.snapshot_id, 1, None, draft.delete_file([(path, 0)]))
    with pytest.raises(InvalidRequest, match="newer"):
        client.commit(draft.body([draft.manifest([entry]), *draft.parent_manifests]))
    assert duckdb_rows(ducklake) == [(1, "a"), (2, "b"), (3, "c")]


def test_virtual_files_of_two_inlined_tables_in_one_step(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    lake = Lake(services, ducklake)
    lake.run(
        "CREATE TABLE lake.t (id BIGINT)",
        "INSERT INTO lake.t VALUES (1), (2)",
        "ALTER TABLE lake.t ADD COLUMN b BIGINT",
        "ALTER TABLE lake.t DROP COLUMN b",
        "INSERT INTO lake.t VALUES (1), (2)",
        "INSERT INTO lake.t SELECT range FROM range(100, 150)",
        "INSERT INTO lake.t SELECT range FROM range(200, 250)",
        "CALL ducklake_merge_adjacent_files('lake')",
    )
    assert iceberg_rows(lake.static()) == lake.duck_rows()
    lake.run("DELETE FROM lake.t WHERE rowid = 0")
    assert iceberg_rows(lake.static()) == lake.duck_rows()


def test_a_worker_whose_progress_was_overtaken_looks_again(
    services: Services, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE lake.t (id BIGINT)")
    lake.metadata()
    other = replace(services, cache=TableCache())
    lake.run("INSERT INTO lake.t VALUES (1)")
    real = catching_up._pending
    slow = real(other, current_table_id(lake))  # the other worker has read what is now
    lake.run("DELETE FROM lake.t")

    def overtaken(mine: Services, table_id: int) -> Any:
        pending = real(mine, table_id)  # what happened collapses to nothing
        monkeypatch.setattr(catching_up, "_pending", lambda *_: slow)
        catch_up(other, table_id)
        monkeypatch.setattr(catching_up, "_pending", real)
        return pending

    monkeypatch.setattr(catching_up, "_pending", overtaken)
    table = load_current_table(services, ("main",), "t").materialized
    assert iceberg_rows(StaticTable.from_metadata(table.location)) == lake.duck_rows() == []


def current_table_id(lake: Lake) -> int:
    ((table_id,),) = lake.sql("SELECT table_id FROM duckicelake_table")
    return int(table_id)


def test_a_purged_table_is_not_adopted_again(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "a"))
    with services.database.transaction() as cursor:
        ((table_id,),) = cursor.execute("SELECT table_id FROM duckicelake_table").fetchall()
        lake_tables.drop_table(cursor, NS[0], "t", purge=True)
    with pytest.raises(NoSuchTable):
        catch_up(services, table_id)


@pytest.mark.parametrize("snapshots", [1, 2])
def test_a_commit_that_creates_the_table_may_delete_at_once(
    client: Client, ducklake: duckdb.DuckDBPyConnection, snapshots: int
) -> None:
    staged = client.create("t", stage_create=True)["metadata"]
    first = Draft(staged)
    file = first.data_file([(1, "a"), (2, "b")])
    lines = [first.manifest([file])]
    if snapshots == 1:
        lines = [*lines, first.manifest([first.delete_file([(file.file_path, 0)])])]
        body = first.body(lines)
    else:
        first_list = first.manifest_list(lines)
        second = Draft(on_top(first, first_list), operation="delete")
        more = [second.manifest([second.delete_file([(file.file_path, 0)])]), *settled(first, lines)]
        body = both(first.body(first_list), second.body(more))
    body["requirements"] = [{"type": "assert-create"}]
    body["updates"] = [*creation(staged), *body["updates"]]
    answer = client.commit(body)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(2, "b")]
    assert_whole(answer)


def creation(metadata: Json) -> list[Json]:
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]


def test_snapshots_of_one_commit_delete_inlined_rows(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 10)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    metadata = client.metadata()
    (path,) = data_files(metadata)
    first = Draft(metadata, operation="delete")
    lines = [first.manifest([first.delete_file([(path, 0)])]), *first.parent_manifests]
    first_list = first.manifest_list(lines)
    second = Draft(on_top(first, first_list), operation="delete")
    more = [second.manifest([second.delete_file([(path, 0), (path, 1)])]), *settled(first, lines)]
    answer = client.commit(both(first.body(first_list), second.body(more)))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(3, "c")]
