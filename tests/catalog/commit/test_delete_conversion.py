"""Deletes that are served in another form: vectors on format version 3, positions instead of equality deletes."""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import DataFile, EntryStatus, FileContent, ManifestContent, ManifestEntry
from duckicelake.iceberg.puffin import write_deletion_vectors
from tests.support.client import (
    ARROW,
    Client,
    Draft,
    Json,
    Row,
    assert_whole,
    data_files,
    duckdb_rows,
    live,
    local,
    pyiceberg_rows,
)

ROWS: list[Row] = [(number, f"r{number}") for number in range(20)]


def draft(metadata: Json, operation: str = "delete") -> Draft:
    return Draft(metadata, operation=operation, format_version=metadata["format-version"])


def body(made: Draft, *files: DataFile) -> Json:
    rows = sum(file.record_count for file in files if file.content is FileContent.DATA)
    lineage = {"first_row_id": made.metadata["next-row-id"], "added_rows": rows} if made.format_version > 2 else {}
    return made.body([made.manifest(files), *made.parent_manifests], **lineage)


def append(client: Client, *rows: Row) -> Json:
    made = draft(client.metadata(), "append")
    answer: Json = client.commit(body(made, made.data_file(rows)))["metadata"]
    return answer


def equality_delete(made: Draft, *ids: int | None) -> DataFile:
    path = f"{made.metadata['location']}/data/equality-{made.snapshot_id}.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ids}, pa.schema([ARROW.field("id")])), local(path))
    size = local(path).stat().st_size
    return DataFile(FileContent.EQUALITY_DELETES, path, "PARQUET", (), len(ids), size, equality_ids=(1,))


def vector(made: Draft, path: str, positions: Sequence[int]) -> DataFile:
    puffin = write_deletion_vectors([(path, frozenset(positions))])
    (blob,) = puffin.blobs
    return DataFile(
        FileContent.POSITION_DELETES, made.new_file("dv.puffin", puffin.data), "PUFFIN", (), len(positions),
        len(puffin.data), referenced_data_file=path, content_offset=blob.offset, content_size_in_bytes=blob.length,
    )  # fmt: skip


def deletes(metadata: Json) -> list[ManifestEntry]:
    entries = [entry for line in Draft(metadata).parent_manifests for entry in live(line)]
    return [entry for entry in entries if entry.data_file.content is not FileContent.DATA]


@pytest.fixture(params=[2, 3])
def table(client: Client, request: pytest.FixtureRequest) -> Client:
    client.create(properties={"format-version": str(request.param)})
    append(client, *ROWS)
    return client


def check(client: Client, ducklake: duckdb.DuckDBPyConnection, *gone: int) -> Json:
    answer = client.load()
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == sorted(row for row in ROWS if row[0] not in gone)
    assert_whole(answer)
    metadata: Json = answer["metadata"]
    return metadata


def test_position_deletes_are_kept_before_version_3_and_become_vectors_from_then_on(
    table: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for number in (3, 4):
        metadata = table.metadata()
        (path,) = data_files(metadata)
        made = draft(metadata)
        table.commit(body(made, made.delete_file([(path, number), (path, 19)])))
    metadata = check(table, ducklake, 3, 4, 19)
    found = [entry.data_file for entry in deletes(metadata)]
    if metadata["format-version"] == 2:
        assert [file.file_format for file in found] == ["PARQUET", "PARQUET"]
    else:
        assert [(file.file_format, file.record_count, file.referenced_data_file) for file in found] == [
            ("PUFFIN", 3, path)
        ]
        summary = metadata["snapshots"][-1]["summary"]
        assert (summary["added-dvs"], summary["removed-dvs"]) == ("1", "1")
        assert "total-delete-files" not in summary  # as its parents state none


def test_equality_deletes_are_served_as_positions(table: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    append(table, (100, "later"))
    made = draft(table.metadata(), "overwrite")
    upserted = [made.data_file([(7, "r7"), (8, "r8")])]
    lineage = {"first_row_id": made.metadata["next-row-id"], "added_rows": 2} if made.format_version > 2 else {}
    lines = [made.manifest(upserted), made.manifest([equality_delete(made, 7, 8, 100, 5, None)])]
    table.commit(made.body([*lines, *made.parent_manifests], **lineage))
    metadata = check(table, ducklake, 5)
    assert {entry.data_file.content for entry in deletes(metadata)} == {FileContent.POSITION_DELETES}
    summary = metadata["snapshots"][-1]["summary"]
    assert summary["added-position-deletes"] == "4"
    assert [key for key in summary if "equality" in key] == []


def test_equality_deletes_reach_inlined_rows(table: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 10)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (50, 'a'), (51, 'b')")
    made = draft(table.metadata())
    table.commit(body(made, equality_delete(made, 50, 51, 2)))
    check(table, ducklake, 2)


def test_vectors_of_clients_delete_and_come_once(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create(properties={"format-version": "3"})
    metadata = append(client, *ROWS)
    (path,) = data_files(metadata)
    made = draft(metadata)
    client.commit(body(made, vector(made, path, [0, 2])))
    metadata = check(client, ducklake, 0, 2)
    made = draft(metadata)
    with pytest.raises(InvalidRequestError, match="remove the old one"):
        client.commit(body(made, vector(made, path, [0, 2, 4])))
    broken = replace(vector(made, path, [1]), record_count=7)
    with pytest.raises(InvalidRequestError, match="has 1 position, not 7"):
        client.commit(body(made, broken))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 6")
    metadata = check(client, ducklake, 0, 2, 6)
    assert [entry.data_file.record_count for entry in deletes(metadata)] == [3]


def test_row_ids_are_ducklakes(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create(properties={"format-version": "3"})
    append(client, *ROWS[:5])
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, 'r' || range FROM range(5, 20)")
    metadata = append(client, (20, "last"))
    assert metadata["next-row-id"] == 21
    assert ducklake.sql("SELECT rowid FROM lake.ns.t ORDER BY id").fetchall() == [(number,) for number in range(21)]
    entries = [entry for line in Draft(metadata).parent_manifests for entry in live(line)]
    firsts = sorted(entry.data_file.first_row_id for entry in entries if entry.data_file.first_row_id is not None)
    assert firsts == [0, 5, 20]
    assert [s["first-row-id"] for s in metadata["snapshots"]] == [0, 5, 20]
    assert {s["sequence-number"] for s in metadata["snapshots"]} == {
        int(s["summary"]["ducklake.snapshot-id"]) for s in metadata["snapshots"]
    }


def test_an_upgraded_table_goes_on_with_its_row_ids(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    append(client, *ROWS[:5])
    client.commit({"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]})
    assert client.metadata()["next-row-id"] == 5
    metadata = append(client, *ROWS[5:])
    entries = [entry for line in Draft(metadata).parent_manifests for entry in live(line)]
    assert sorted(entry.data_file.first_row_id or 0 for entry in entries) == [0, 5]
    assert ducklake.sql("SELECT rowid FROM lake.ns.t ORDER BY id").fetchall() == [(number,) for number in range(20)]
    check(client, ducklake)


def test_one_of_two_vectors_in_a_file_is_replaced(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create(properties={"format-version": "3"})
    append(client, *ROWS[:10])
    metadata = append(client, *ROWS[10:])
    first, second = data_files(metadata)
    made = draft(metadata)
    puffin = write_deletion_vectors([(first, frozenset([0, 1])), (second, frozenset([0]))])
    path = made.new_file("dvs.puffin", puffin.data)
    both = [
        replace(
            vector(made, target, positions), file_path=path, file_size_in_bytes=len(puffin.data),
            content_offset=blob.offset, content_size_in_bytes=blob.length,
        )
        for target, positions, blob in zip((first, second), ([0, 1], [0]), puffin.blobs, strict=True)
    ]  # fmt: skip
    client.commit(body(made, *both))
    metadata = check(client, ducklake, 0, 1, 10)
    made = draft(metadata)
    lines = [line for line in made.parent_manifests if line.content is ManifestContent.DATA]
    kept = [
        replace(entry, status=EntryStatus.EXISTING)
        for entry in deletes(metadata)
        if entry.data_file.referenced_data_file == first
    ]
    changed = [*kept, made.added(vector(made, second, [0, 5]))]
    lineage = {"first_row_id": metadata["next-row-id"], "added_rows": 0}
    client.commit(made.body([made.manifest(changed), *lines], **lineage))
    check(client, ducklake, 0, 1, 10, 15)


def test_rows_without_row_ids_in_a_file_that_says_others(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    """As Spark's MERGE writes them; DuckDB would take all of them for one row, and lose it when it updates them."""
    client.create(properties={"format-version": "3"})
    append(client, *ROWS[:5])
    made = draft(client.metadata(), "overwrite")
    file = made.data_file([(50, "new"), (51, "old"), (52, "new")])
    lineage = pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"})
    rows = pq.read_table(local(file.file_path)).append_column(lineage, pa.array([None, 3, None], pa.int64()))
    pq.write_table(rows, local(file.file_path))
    file = replace(file, file_size_in_bytes=local(file.file_path).stat().st_size, value_counts=None)
    client.commit(body(made, file))
    query = "SELECT rowid, id FROM lake.ns.t WHERE id >= 50 ORDER BY id"
    assert ducklake.sql(query).fetchall() == [(5, 50), (3, 51), (7, 52)]
    ducklake.execute("UPDATE lake.ns.t SET name = 'updated' WHERE id >= 50")
    ducklake.execute("UPDATE lake.ns.t SET name = 'again' WHERE id = 50")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 52")
    assert duckdb_rows(ducklake) == pyiceberg_rows(client.load()) == [*ROWS[:5], (50, "again"), (51, "updated")]
    assert ducklake.sql(query).fetchall() == [(5, 50), (3, 51)]
