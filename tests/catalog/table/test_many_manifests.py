"""Snapshots of more files than one manifest may hold: engines read all of them, and deletes rewrite few of them."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension

from duckicelake.bridge import manifest_lists
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.manifest.reader import read_manifest_list
from tests.support.client import Client, Draft, Json, Row, assert_whole, duckdb_rows, local, pyiceberg_rows
from tests.support.seams import fresh

MOST = 4


@pytest.fixture(autouse=True)
def small_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if manifests held four files at most: real ones have ten thousand."""
    monkeypatch.setattr(manifest_lists, "MAX_MANIFEST_FILES", MOST)


@pytest.fixture(scope="module")
def iceberg() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB as a reader of Iceberg, which knows nothing of the lake."""
    import_extension("iceberg")
    import_extension("avro")
    with duckdb.connect() as connection:
        yield connection.execute("LOAD avro; LOAD iceberg")


def lines(answer: Json) -> dict[str, list[tuple[str, int]]]:
    """(path, live files) of the current snapshot's manifests, of data and of deletes."""
    metadata = answer["metadata"]
    current = next(s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"])
    found: dict[str, list[tuple[str, int]]] = {"DATA": [], "DELETES": []}
    for line in read_manifest_list(local(current["manifest-list"]).read_bytes()):
        live = (line.added_files_count or 0) + (line.existing_files_count or 0)
        found[ManifestContent(line.content).name].append((line.manifest_path, live))
    return found


def insert_files(duck: duckdb.DuckDBPyConnection, count: int) -> None:
    """In one snapshot, each of a hundred rows."""
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    duck.execute("BEGIN")
    for number in range(count):
        duck.execute(f"INSERT INTO lake.ns.t SELECT i, 'x' FROM range({100 * number}, {100 * number + 100}) r(i)")
    duck.execute("COMMIT")


def assert_read_alike(answer: Json, iceberg: duckdb.DuckDBPyConnection, expected: list[Row]) -> None:
    assert pyiceberg_rows(answer) == expected
    scan = f"SELECT id, name FROM iceberg_scan('{answer['metadata-location']}') ORDER BY ALL"
    assert iceberg.sql(scan).fetchall() == expected
    assert_whole(answer)


@pytest.mark.parametrize("version", ["2", "3"])
def test_files_that_duckdb_wrote_in_one_snapshot_are_listed_in_several_manifests_which_deletes_leave_alone(
    client: Client, ducklake: duckdb.DuckDBPyConnection, iceberg: duckdb.DuckDBPyConnection, version: str
) -> None:
    client.create(properties={"format-version": version})
    insert_files(ducklake, 10)
    before = client.load()
    assert [files for _, files in lines(before)["DATA"]] == [4, 4, 2]
    assert_read_alike(before, iceberg, duckdb_rows(ducklake))

    ducklake.execute("DELETE FROM lake.ns.t WHERE id % 100 = 7")
    marked = client.load()
    assert lines(marked)["DATA"] == lines(before)["DATA"]
    assert [files for _, files in lines(marked)["DELETES"]] == ([4, 4, 2] if version == "3" else [1])
    assert_read_alike(marked, iceberg, duckdb_rows(ducklake))

    ducklake.execute("DELETE FROM lake.ns.t WHERE id < 100")
    after = client.load()
    assert sorted(files for _, files in lines(after)["DATA"]) == [2, 3, 4]
    assert len(set(lines(before)["DATA"]) & set(lines(after)["DATA"])) == 2
    assert_read_alike(after, iceberg, duckdb_rows(ducklake))


def test_manifests_of_one_snapshot_are_the_same_when_they_are_written_again_from_nothing(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    insert_files(ducklake, 9)
    before = client.load()
    folder = local(before["metadata"]["location"]) / "metadata"
    contents = {path: path.read_bytes() for path in folder.iterdir()}
    for path in contents:
        path.unlink()
    assert Client(fresh(services)).load() == before
    again: dict[Path, bytes] = {path: path.read_bytes() for path in folder.iterdir()}
    assert again.keys() <= contents.keys()
    assert {path.name for path in again if path.suffix == ".avro"} == {
        path.name for path in contents if path.suffix == ".avro"
    }
    assert all(contents[path] == data for path, data in again.items())


def test_files_that_a_client_commits_together_are_listed_in_several_manifests(
    client: Client, iceberg: duckdb.DuckDBPyConnection
) -> None:
    draft = Draft(client.create()["metadata"])
    rows: list[list[Row]] = [[(number, "a"), (number + 100, None)] for number in range(9)]
    client.commit(draft.body([draft.manifest([draft.data_file(each) for each in rows])]))
    answer = client.load()
    assert [files for _, files in lines(answer)["DATA"]] == [4, 4, 1]
    assert_read_alike(answer, iceberg, sorted(row for each in rows for row in each))
