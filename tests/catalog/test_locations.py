"""Where tables live: the location that a client gives, a change of it, and what is refused."""

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse import prepare_lake
from duckicelake.errors import InvalidRequestError, InvalidSettingsError
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.lake.ducklake.database import open_lake_database
from tests.conftest import Attach
from tests.support import engine
from tests.support.client import (
    NS,
    Client,
    Json,
    Row,
    append,
    assert_whole,
    data_files,
    duckdb_rows,
    local,
    new_client,
    pyiceberg_rows,
)
from tests.support.seams import fresh

ROWS: list[Row] = [(number, f"r{number}") for number in range(10)]


@pytest.fixture
def roomy(client: Client, tmp_path: Path) -> Client:
    """A client of a server that allows a further location."""
    services = client.services
    return Client(replace(services, policy=replace(services.policy, allowed=(f"file://{tmp_path}/shared",))))


def move(location: str) -> Json:
    return {"requirements": [], "updates": [{"action": "set-location", "location": location}]}


def folders(paths: list[str]) -> set[str]:
    return {path.rpartition("/")[0] for path in paths}


def test_tables_that_duckdb_makes_one_after_the_other_have_places_of_their_own(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    places = set()
    for number in range(3):
        ducklake.execute(f"CREATE OR REPLACE TABLE ns.often AS SELECT {number} AS id")
        places.add(client.metadata("often")["location"])
    assert len(places) == 3


@pytest.mark.parametrize("scheme", ["file://", "file:", ""])
def test_location_that_a_client_gives_is_where_everything_of_the_table_goes(
    roomy: Client, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path, scheme: str
) -> None:
    location = f"{scheme}{tmp_path}/shared/t"
    created = roomy.create(location=f"{location}/")
    assert created["metadata"]["location"] == location
    roomy.commit(engine_append(roomy, *ROWS))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (10, 'DuckDB')")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id < 2")
    answer = roomy.load()
    assert answer["metadata-location"].startswith(f"{location}/metadata/")
    assert all(s["manifest-list"].startswith(f"{location}/metadata/") for s in answer["metadata"]["snapshots"])
    assert len(duckdb_rows(ducklake)) == 9
    if scheme:
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake)


def engine_append(client: Client, *rows: Row) -> Json:
    """An append whose own files are where the table's location is on this machine."""
    metadata = client.metadata()
    path = metadata["location"].removeprefix("file:").removeprefix("//")
    return append({**metadata, "location": f"file://{path}"}, *rows)


REFUSED = ["file:///etc/t", "{warehouse}", "{warehouse}/data", "{warehouse}/ducklake/t", "{warehouse}/ducklake",
           "{warehouse}/data/../ducklake/t", "s3://bucket/t", "relative/t", "file://{tmp}/shared2/t", ""]  # fmt: skip


@pytest.mark.parametrize("location", REFUSED)
def test_locations_that_are_not_a_tables_are_refused_on_every_way(roomy: Client, tmp_path: Path, location: str) -> None:
    location = location.format(warehouse=f"file://{roomy.services.policy.warehouse}", tmp=tmp_path)
    metadata = roomy.create("other")["metadata"]
    if location:
        with pytest.raises(InvalidRequestError):
            roomy.create(location=location)
    with pytest.raises(InvalidRequestError):
        roomy.commit(move(location), "other")
    assert roomy.metadata("other") == metadata


def test_moved_table_keeps_its_old_files_and_puts_new_ones_into_the_new_place(
    roomy: Client, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    roomy.create()
    roomy.append(*ROWS)
    old = roomy.commit(engine.delete_rows([0, 1])(roomy.metadata()))["metadata"]
    new = f"file://{tmp_path}/shared/t"
    moved = roomy.commit(move(new))
    assert moved["metadata"]["location"] == new
    assert moved["metadata-location"].startswith(f"{new}/metadata/")
    assert pyiceberg_rows(moved) == duckdb_rows(ducklake) == ROWS[2:]
    roomy.commit(engine.delete_rows([2])(roomy.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'DuckDB')")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 3")
    answer = roomy.append((101, "new"))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [*ROWS[4:], (100, "DuckDB"), (101, "new")]
    lists = [snapshot["manifest-list"] for snapshot in answer["metadata"]["snapshots"]]
    assert folders(lists[:2]) == {f"{old['location']}/metadata"}
    assert folders(lists[2:]) == {f"{new}/metadata"}
    manifests = [line.manifest_path for line in read_manifest_list(local(lists[-1]).read_bytes())]
    assert folders(manifests) == {f"{old['location']}/metadata", f"{new}/metadata"}
    assert data_files(answer["metadata"])[0].startswith(old["location"])
    assert_whole(answer)
    before = {snapshot["snapshot-id"] for snapshot in old["snapshots"]}
    for id_ in before:
        assert pyiceberg_rows(answer, id_) in (ROWS, ROWS[2:])


def test_slash_at_the_end_of_a_new_place_is_no_part_of_its_name(on_s3: Services) -> None:
    client = new_client(on_s3)
    client.create()
    location = client.metadata()["location"]
    moved = client.commit(move(f"{location}-moved/"))
    assert moved["metadata"]["location"] == f"{location}-moved"
    assert moved["metadata-location"].startswith(f"{location}-moved/metadata/")
    assert Client(fresh(on_s3)).load() == {**moved, "config": {}}
    assert client.commit(move(f"{location}-moved/")) == moved


def test_lost_metadata_of_a_moved_table_is_written_again(roomy: Client, tmp_path: Path) -> None:
    roomy.create()
    old = roomy.append(*ROWS)["metadata"]
    roomy.commit(move(f"file://{tmp_path}/shared/t"))
    lost = local(old["snapshots"][0]["manifest-list"])
    lost.unlink()
    answer = Client(fresh(roomy.services)).load()
    assert pyiceberg_rows(answer) == ROWS
    assert not lost.exists()
    assert_whole(answer)


def test_uploads_in_the_old_place_are_refused_after_a_move(roomy: Client, tmp_path: Path) -> None:
    roomy.create()
    late = append(roomy.metadata(), *ROWS)
    roomy.commit(move(f"file://{tmp_path}/elsewhere/../shared/t"))
    with pytest.raises(InvalidRequestError, match="must lie in"):
        roomy.commit(late)


def test_move_and_append_in_one_request(roomy: Client, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    metadata = roomy.create()["metadata"]
    new = f"file://{tmp_path}/shared/t"
    body = append({**metadata, "location": new}, *ROWS)
    answer = roomy.commit({**body, "updates": [*move(new)["updates"], *body["updates"]]})
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == ROWS


def test_equality_deletes_reach_files_in_the_old_place(
    roomy: Client, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    roomy.create()
    roomy.append(*ROWS)
    roomy.commit(move(f"file://{tmp_path}/shared/t"))
    answer = roomy.commit(engine.delete_equal(3, 4)(roomy.metadata()))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [row for row in ROWS if row[0] not in {3, 4}]


def test_purge_deletes_the_files_in_all_places_of_a_table(
    roomy: Client, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    old = roomy.create()["metadata"]["location"]
    roomy.append(*ROWS)
    roomy.commit(move(f"file://{tmp_path}/shared/t"))
    roomy.append((101, "new"))
    tables.drop_table(roomy.services, NS, "t", purge=True)
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)")
    ducklake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    left = [path for folder in (local(old), tmp_path / "shared" / "t") for path in folder.rglob("*") if path.is_file()]
    assert {path.name[:7] for path in left} == {"client-"}, "what the client uploaded is known by its contents only"


@pytest.mark.parametrize("allowed", ["", "/own", "/own/x"])
def test_adopted_lake_whose_files_lie_where_tables_may_be_is_refused(
    empty_database_url: str, attach: Attach, services: Services, tmp_path: Path, allowed: str
) -> None:
    attach(url=empty_database_url, data_path=f"{tmp_path}/own/").execute("CREATE TABLE t AS SELECT 1 AS i")
    database = open_lake_database(empty_database_url, pool_size=2)
    policy = replace(services.policy, allowed=(f"{tmp_path}{allowed}",))
    with pytest.raises(InvalidSettingsError, match="DATA_PATH"):
        prepare_lake(replace(services, database=database, policy=policy))
    beside = replace(services.policy, allowed=(f"{tmp_path}/beside",))
    assert prepare_lake(replace(services, database=database, policy=beside)) == f"{tmp_path}/own/"
    database.close()
