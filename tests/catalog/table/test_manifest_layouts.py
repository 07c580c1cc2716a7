"""What clients lay out with `rewrite_manifests` is listed as they laid it out, and changes no entry."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import (
    EntryStatus,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    inherit_all_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest
from tests.support.client import Client, Draft, Json, duckdb_rows, local, pyiceberg_rows
from tests.support.engine import append, delete_rows
from tests.support.seams import fresh

Entries = list[ManifestEntry]
COUNTS = {"manifests-created": "77", "manifests-kept": "77", "manifests-replaced": "77", "entries-processed": "77"}


def entries(line: ManifestFile) -> Entries:
    """All that a manifest lists, with what its entries inherit."""
    return inherit_all_numbers(read_manifest(local(line.manifest_path).read_bytes()).entries, line)


def contents(metadata: Json) -> list[list[str]]:
    """The live files of each manifest of the current snapshot."""
    lines = Draft(metadata).parent_manifests
    return [[e.data_file.file_path for e in entries(line) if e.status is not EntryStatus.DELETED] for line in lines]


def live_entries(metadata: Json) -> dict[tuple[str, int | None], tuple[Any, ...]]:
    """What is said of each live file, its status aside."""
    found = [e for line in Draft(metadata).parent_manifests for e in entries(line)]
    return {
        (e.data_file.file_path, e.data_file.content_offset): (
            (e.snapshot_id, e.sequence_number, e.file_sequence_number, e.data_file)
        )
        for e in found
        if e.status is not EntryStatus.DELETED
    }


def relaid(metadata: Json, arrange: Callable[[Entries], Sequence[Entries]], kept: int = 0, **changes: Any) -> Json:
    """The commit that lays out data and deletes anew but for the last `kept` manifests. changes: of each data file."""
    draft = Draft(metadata, operation="replace", format_version=metadata["format-version"])
    lines = draft.parent_manifests
    moved, stay = lines[: len(lines) - kept], lines[len(lines) - kept :]
    made = []
    for content in ManifestContent:
        files = [e for line in moved if line.content is content for e in entries(line)]
        files = [replace(e, status=EntryStatus.EXISTING) for e in files if e.status is not EntryStatus.DELETED]
        files = [replace(e, data_file=replace(e.data_file, **changes)) for e in files]
        made += [draft.manifest(group) for group in arrange(files) if group]
    return draft.body([*made, *stay], summary={"operation": "replace", **COUNTS})


def one(files: Entries) -> list[Entries]:
    return [files]


def sorted_pairs(files: Entries) -> list[Entries]:
    ordered = sorted(files, key=lambda entry: entry.data_file.file_path)
    return [ordered[at : at + 2] for at in range(0, len(ordered), 2)]


@pytest.fixture(params=[1, 2, 3])
def table(request: pytest.FixtureRequest, client: Client, ducklake: duckdb.DuckDBPyConnection) -> Client:
    """A table of both sides, with deletes but in version 1."""
    version = request.param
    client.create(properties={"format-version": str(version)})
    for number in range(5):
        client.commit(append((number, "a"), (number + 100, "b"))(client.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (50, 'inlined'), (51, 'too')")
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'file' FROM range(200, 220)")
    if version > 1:
        client.commit(delete_rows([100, 101])(client.metadata()))
        client.commit(delete_rows([102])(client.metadata()))
    return client


@pytest.mark.parametrize(("arrange", "kept"), [(one, 0), (sorted_pairs, 2)])
def test_entries_move_to_the_manifests_that_the_client_wants_and_stay_as_they_are(
    table: Client, ducklake: duckdb.DuckDBPyConnection, arrange: Callable[[Entries], Sequence[Entries]], kept: int
) -> None:
    before, rows = table.metadata(), pyiceberg_rows(table.load())
    body = relaid(before, arrange, kept)
    wanted = Draft({**before, "snapshots": [body["updates"][0]["snapshot"]], "refs": {
        "main": {"snapshot-id": body["updates"][0]["snapshot"]["snapshot-id"]}}}).parent_manifests  # fmt: skip
    table.commit(body)
    after = table.metadata()
    assert contents(after) == [
        [e.data_file.file_path for e in entries(line) if e.status is not EntryStatus.DELETED] for line in wanted
    ]
    assert live_entries(after) == live_entries(before)
    lines, old = Draft(after).parent_manifests, Draft(before).parent_manifests
    new = [line for line in lines if line.manifest_path not in {each.manifest_path for each in old}]
    assert {line.added_snapshot_id for line in new} == {after["current-snapshot-id"]}
    assert {e.status for line in new for e in entries(line)} == {EntryStatus.EXISTING}
    assert [line.min_sequence_number for line in new] == [
        min(e.sequence_number or 0 for e in entries(line)) for line in new
    ]
    summary = after["snapshots"][-1]["summary"]
    assert {name: summary[name] for name in COUNTS} == {
        "manifests-created": str(len(new)),
        "manifests-kept": str(kept),
        "manifests-replaced": str(len(old) - kept),
        "entries-processed": "77",
    }
    assert pyiceberg_rows(table.load()) == duckdb_rows(ducklake) == rows


def test_a_layout_outlives_later_commits_until_the_client_lays_out_again(
    table: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    table.commit(relaid(table.metadata(), lambda files: [[file] for file in files]))
    laid_out = {line.manifest_path for line in Draft(table.metadata()).parent_manifests}
    for number in range(12):
        table.commit(append((300 + number, "later"))(table.metadata()))
    for number in range(12):
        first = 400 + 20 * number
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'later' FROM range({first}, {first + 20})")
        table.load()
    listed = {line.manifest_path for line in Draft(table.metadata()).parent_manifests}
    assert laid_out <= listed
    assert len(listed - laid_out) < 24
    table.commit(relaid(table.metadata(), one))
    assert len(Draft(table.metadata()).parent_manifests) <= 2
    assert pyiceberg_rows(table.load()) == duckdb_rows(ducklake)


def test_manifests_of_a_layout_are_written_again_byte_for_byte(table: Client, services: Services) -> None:
    table.commit(relaid(table.metadata(), sorted_pairs))
    lines = Draft(table.metadata()).parent_manifests
    written = {line.manifest_path: local(line.manifest_path).read_bytes() for line in lines}
    for path in written:
        local(path).unlink()
    Client(fresh(services)).load()
    assert {path: local(path).read_bytes() for path in written} == written


def test_facts_of_files_are_the_catalogs_whatever_the_client_says_of_them(table: Client) -> None:
    before = table.metadata()
    table.commit(relaid(before, one, record_count=7, file_size_in_bytes=7))
    assert live_entries(table.metadata()) == live_entries(before)


@pytest.mark.parametrize("wrong", ["twice", "not all"])
def test_what_is_no_layout_of_each_file_once_isnt_taken_for_one(client: Client, wrong: str) -> None:
    """A file that is listed twice is listed once; one that isn't listed is removed."""
    client.create()
    for number in range(3):
        client.append((number, "a"))
    client.commit(relaid(client.metadata(), lambda files: [files, files[:1]] if wrong == "twice" else [files[:2]]))
    summary = client.metadata()["snapshots"][-1]["summary"]
    paths = [path for manifest in contents(client.metadata()) for path in manifest]
    assert len(paths) == len(set(paths)) == (3 if wrong == "twice" else 2)
    created = [line for line in Draft(client.metadata()).parent_manifests
               if line.added_snapshot_id == client.metadata()["current-snapshot-id"]]  # fmt: skip
    assert (summary["manifests-created"], summary["entries-processed"]) == (str(len(created)), "0")


@pytest.mark.parametrize(
    ("properties", "longest"),
    [
        ({}, 30),
        ({"commit.manifest-merge.enabled": "false"}, 24),
        ({"commit.manifest.min-count-to-merge": "3"}, 6),
        ({"commit.manifest.min-count-to-merge": "no number"}, 15),
    ],
)
def test_appends_pack_as_the_tables_properties_say(client: Client, properties: dict[str, str], longest: int) -> None:
    client.create(properties=properties)
    for number in range(24):
        body = append((number, "a"))(client.metadata())
        body["updates"][0]["snapshot"]["summary"] |= COUNTS
        client.commit(body)
    metadata = client.metadata()
    lines = Draft(metadata).parent_manifests
    assert sum(line.existing_files_count + line.added_files_count for line in lines) == 24
    if properties.get("commit.manifest-merge.enabled") == "false":
        assert len(lines) == longest
    assert len(lines) <= longest
    own = metadata["current-snapshot-id"]
    summary = metadata["snapshots"][-1]["summary"]
    assert summary["manifests-created"] == str(sum(line.added_snapshot_id == own for line in lines))
    assert summary["manifests-kept"] == str(sum(line.added_snapshot_id != own for line in lines))
