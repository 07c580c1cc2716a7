"""Commits of several snapshots, and of snapshots that other clients would not write."""

from dataclasses import replace

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import EntryStatus, ManifestEntry, ManifestFile
from tests.support.client import (
    Client,
    Draft,
    Json,
    assert_whole,
    data_files,
    duckdb_rows,
    pyiceberg_rows,
)
from tests.support.client import append as append_body
from tests.support.client import delete as delete_body


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
    with pytest.raises(InvalidRequestError, match="newer"):
        client.commit(draft.body([draft.manifest([entry]), *draft.parent_manifests]))
    assert duckdb_rows(ducklake) == [(1, "a"), (2, "b"), (3, "c")]


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
