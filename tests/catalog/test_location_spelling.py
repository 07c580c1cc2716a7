"""How locations of a lake in a folder are spelled: as Hadoop's Path spells them; what was spelled before stays."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.storage.policy import LocationPolicy
from tests.support.client import Client, Draft, Json, data_files, duckdb_rows, new_client, pyiceberg_rows
from tests.support.engine import delete_rows
from tests.support.seams import fresh


def named_files(answer: Json) -> list[str]:
    """All files of a table that the server wrote, as they are named."""
    metadata = answer["metadata"]
    lists = [snapshot["manifest-list"] for snapshot in metadata["snapshots"]]
    manifests = [line.manifest_path for line in Draft(metadata).parent_manifests]
    log = [entry["metadata-file"] for entry in metadata["metadata-log"]]
    return [answer["metadata-location"], *lists, *manifests, *log]


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_new_table_and_what_is_written_for_it_have_one_prefix(
    client: Client, ducklake: duckdb.DuckDBPyConnection, warehouse: Path, version: str
) -> None:
    client.create(properties={"format-version": version})
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'a'), (2, 'b')")
    client.load()
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    answer = client.load()
    location = answer["metadata"]["location"]
    assert location.startswith(f"file:{warehouse}/data/ns/t-")
    assert [
        name for name in (*named_files(answer), *data_files(answer["metadata"])) if not name.startswith(location)
    ] == []
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(2, "b")]


def test_a_warehouse_that_is_written_as_a_uri_keeps_its_spelling() -> None:
    uuid = "01234567-0123-0123-0123-0123456789ab"
    for warehouse, prefix in {
        "/w": "file:/w",
        "file:///w": "file:///w",
        "file:/w": "file:/w",
        "s3://b": "s3://b",
    }.items():
        assert LocationPolicy(warehouse).table_location(("ns",), "t", uuid) == f"{prefix}/data/ns/t-456789ab"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("spark", [True, False])
def test_deletes_of_before_the_change_still_delete(
    services: Services, ducklake: duckdb.DuckDBPyConnection, version: int, spark: bool
) -> None:
    """Tables of then are at `file:///…`, where Spark's files are `file:/…` and PyIceberg's `file:///…`."""
    old = replace(services, policy=LocationPolicy(f"file://{services.policy.warehouse}"))
    before = new_client(old)
    before.create(properties={"format-version": str(version)})
    location = before.metadata()["location"]
    assert location.startswith("file:///")
    spelt = before.metadata()
    if spark:
        spelt = {**spelt, "location": location.replace("file://", "file:")}
    before.commit(body(spelt, append_rows=[(number, "a") for number in range(6)], version=version))
    before.commit(delete_rows([0, 1])(before.metadata()))
    client = Client(fresh(services))
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == [(number, "a") for number in range(2, 6)]
    assert client.metadata()["location"] == location
    assert [path.startswith("file:///") for path in data_files(client.metadata())] == [not spark]
    client.commit(delete_rows([2])(client.metadata()))
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 3")
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == [(4, "a"), (5, "a")]
    assert [name for name in named_files(client.load()) if not name.startswith(location)] == []


def body(metadata: Json, append_rows: list[tuple[int, str]], version: int) -> Json:
    draft = Draft(metadata, format_version=version)
    return draft.body([draft.manifest([draft.data_file(append_rows)]), *draft.parent_manifests])
