"""Orphans go, and nothing else does: every file of these lakes is old, so that age protects none."""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import duckdb
import pytest

from duckicelake.catalog import tables, views
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.catalog.gc import delete_orphans, find_orphans
from tests.support.client import (
    NS,
    Client,
    Draft,
    append,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    local,
    new_client,
    pyiceberg_rows,
    set_properties,
)
from tests.support.foreign_catalog import unregister
from tests.support.s3_lakes import now_ms
from tests.support.seams import Fuse, Killed, fresh, fused
from tests.support.view_requests import commit as commit_view
from tests.support.view_requests import create as create_view
from tests.support.view_requests import register as register_view
from tests.support.view_requests import set_properties as set_view_properties

LONG_AGO = 1_600_000_000
DAY_MS = 24 * 3600 * 1000


def grow_old(services: Services) -> list[Path]:
    """Give all files of the lake an age; all of them."""
    files = [path for path in Path(services.policy.warehouse).rglob("*") if path.is_file()]
    for path in files:
        os.utime(path, (LONG_AGO, LONG_AGO))
    return files


def orphans(services: Services) -> set[Path]:
    grow_old(services)
    return {local(file.location) for file in find_orphans(fresh(services), now_ms() - DAY_MS)}


def collect(services: Services) -> None:
    grow_old(services)
    delete_orphans(services, find_orphans(fresh(services), now_ms() - DAY_MS))


def put(path: Path, data: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.fixture
def litter(services: Services, client: Client) -> Callable[[str], set[Path]]:
    """Leave in a table's places all that may be left there, but for `table` in no table at all."""

    def leave(name: str) -> set[Path]:
        metadata = client.metadata(name)
        before = set(grow_old(services))
        append(metadata, (-1, "never committed"))
        place, ducklake = local(metadata["location"]), Path(services.policy.data_path)
        put(place / "metadata" / ".tmp-abc123")
        put(place / "metadata" / "00099-lost-race.metadata.json", b'{"table-uuid": "x"}')
        put(ducklake / "ns" / name / "ducklake-of-a-transaction-that-failed.parquet")
        return set(grow_old(services)) - before

    return leave


def use(client: Client, ducklake: duckdb.DuckDBPyConnection, name: str = "t") -> None:
    """Give a table something of everything that DuckDB and Iceberg clients make files of."""
    client.create(name)
    client.append(*((number, "iceberg") for number in range(40)), name=name)
    path = data_files(client.metadata(name))[0]
    client.commit(delete(client.metadata(name), (path, 3), (path, 4)), name)
    ducklake.execute(f"INSERT INTO lake.ns.{name} SELECT 100 + i, 'duckdb' FROM range(30) r(i)")
    ducklake.execute(f"INSERT INTO lake.ns.{name} VALUES (200, 'inlined')")
    client.load(name)
    ducklake.execute(f"DELETE FROM lake.ns.{name} WHERE id IN (7, 105, 200)")
    branch = Draft(client.metadata(name), branch="b")
    client.commit(branch.body([branch.manifest([branch.data_file([(300, "on a branch")])])]), name)


def assert_all_there(services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, name: str = "t") -> None:
    answer = client.load(name)
    assert_whole(answer)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name)
    damage, needed = examine_tables(services.database)
    assert damage == []
    assert [finding for finding in examine_files(services.store, needed) if finding is not None] == []


def test_what_failed_commits_and_killed_writers_left_goes_and_all_else_stays(
    services: Services,
    client: Client,
    ducklake: duckdb.DuckDBPyConnection,
    litter: Callable[[str], set[Path]],
) -> None:
    use(client, ducklake)
    collect(services)
    left = litter("t")
    assert len(left) == 6
    assert orphans(services) == left
    collect(services)
    assert not any(path.exists() for path in left)
    assert orphans(services) == set()
    assert_all_there(services, client, ducklake)


@pytest.mark.parametrize("ending", ["gc disabled", "dropped"])
def test_unfinished_file_goes_from_the_place_of_a_table_that_keeps_all_others(
    services: Services, client: Client, litter: Callable[[str], set[Path]], ending: str
) -> None:
    client.create()
    left = litter("t")
    unfinished = put(local(client.metadata()["location"]) / "data" / f".tmp-{uuid4().hex}")
    others = put(unfinished.with_name(f".tmp-{uuid4()}"))
    if ending == "dropped":
        tables.drop_table(services, NS, "t", purge=False)
    else:
        client.commit(set_properties(**{"gc.enabled": "false"}))
    assert {path for path in orphans(services) if path.name.startswith(".tmp-")} == {unfinished}
    os.utime(unfinished)
    assert unfinished not in {local(file.location) for file in find_orphans(services, now_ms() - DAY_MS)}
    collect(services)
    assert not unfinished.exists()
    assert others.exists()
    assert (ending == "dropped") or all(path.exists() for path in left if path.is_relative_to(unfinished.parents[1]))


def test_young_files_stay(services: Services, client: Client, litter: Callable[[str], set[Path]]) -> None:
    client.create()
    (young, *_) = left = litter("t")
    os.utime(young)
    found = find_orphans(services, now_ms() - DAY_MS)
    assert {local(file.location) for file in found} == left - {young}


def test_dry_run_deletes_nothing(services: Services, client: Client, litter: Callable[[str], set[Path]]) -> None:
    client.create()
    left = litter("t")
    assert orphans(services) == left
    assert all(path.exists() for path in left)


def test_files_of_ducklakes_past_and_scheduled_ones_stay(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    use(client, ducklake)
    client.load()
    ducklake.execute("CALL ducklake_merge_adjacent_files('lake')")
    ducklake.execute("CREATE TABLE lake.ns.gone AS SELECT i FROM range(100) r(i)")
    ducklake.execute("DROP TABLE lake.ns.gone")
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    collect(services)
    with services.database.reading() as cursor:
        (scheduled,) = cursor.execute("SELECT count(*) FROM ducklake_files_scheduled_for_deletion").fetchall()[0]
    assert scheduled > 0
    remaining = set(grow_old(services))
    assert orphans(services) == set()
    ducklake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert len(remaining - set(grow_old(services))) == scheduled
    assert_all_there(services, client, ducklake)


def test_place_of_a_table_that_was_given_up_is_its_new_catalogs(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "one"))
    metadata = client.metadata()
    unregister(client)
    put(local(metadata["location"]) / "data" / "of-the-other-catalog.parquet")
    assert orphans(services) == set()


@pytest.mark.parametrize("purge", [False, True])
def test_place_of_a_dropped_table_is_collected_only_if_it_was_purged(
    services: Services, client: Client, purge: bool, litter: Callable[[str], set[Path]]
) -> None:
    client.create()
    left = {path for path in litter("t") if "ducklake" not in path.parts}
    tables.drop_table(services, NS, "t", purge=purge)
    assert orphans(services) & left == (left if purge else set())


def test_guarded_table_is_left_alone(services: Services, client: Client, litter: Callable[[str], set[Path]]) -> None:
    client.create()
    client.create("other")
    client.commit(set_properties(**{"gc.enabled": "false"}))
    guarded, other = litter("t"), litter("other")
    assert orphans(services) & guarded == {path for path in guarded if path.name.startswith("ducklake-of")}
    assert other <= orphans(services)


def test_metadata_of_views_stays_for_clients_that_register_it_again(services: Services, client: Client) -> None:
    first = create_view(services, "v")
    commit_view(services, "v", set_view_properties(a="b"))
    views.drop_view(services, ("main",), "v")
    assert orphans(services) == set()
    assert register_view(services, "again", first["metadata-location"]) == first


def test_what_a_killed_server_wrote_and_never_recorded_is_claimed_by_the_next_load(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "one"))
    collect(services)
    fuse, metadata = until_recording(services, client), local(client.metadata()["location"]) / "metadata"
    body = append(client.metadata(), (2, "two"))
    with pytest.raises(Killed):
        Client(fused(services, fuse)).commit(body)
    unrecorded = {path for path in metadata.iterdir() if not path.name.startswith("client-")}
    assert orphans(services) & unrecorded == set()
    collect(services)
    assert_all_there(services, client, ducklake)
    assert unrecorded <= set(metadata.iterdir())


def until_recording(services: Services, client: Client) -> Fuse:
    """A fuse that burns down once a commit has written its files, before it notes so."""
    fuse = Fuse(1000)
    Client(fused(services, fuse)).commit(append(client.metadata(), (0, "counts")))
    written = max(index for index, step in enumerate(fuse.log) if step == "after writing .json")
    return Fuse(written + 1)


def test_orphans_of_a_table_that_can_not_be_loaded_stay(
    services: Services, client: Client, litter: Callable[[str], set[Path]]
) -> None:
    client.create()
    client.append((1, "one"))
    left = litter("t")
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_table SET caught_up_to = 1000000")
    assert {path for path in orphans(services) if "ducklake" not in path.parts} & left == set()


def test_statistics_and_checksums_stay_with_what_they_are_of(services: Services, client: Client) -> None:
    client.create()
    client.append((1, "one"))
    collect(services)
    metadata = client.metadata()
    place = local(metadata["location"])
    statistics = put(place / "metadata" / "statistics.puffin")
    update = {
        "action": "set-statistics",
        "statistics": {
            "snapshot-id": metadata["current-snapshot-id"],
            "statistics-path": f"file://{statistics}",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        },
    }
    client.commit({"requirements": [], "updates": [update]})
    used = local(data_files(metadata)[0])
    put(used.with_name(f".{used.name}.crc"))
    lonely = put(used.with_name(".never-committed.parquet.crc"))
    strange = put(used.with_name("notes.txt"))
    assert orphans(services) == {lonely}
    assert strange.exists()


def test_orphans_go_from_s3_too(on_s3: Services) -> None:
    client = new_client(on_s3)
    answer = client.create()
    orphan = f"{answer['metadata']['location']}/data/a b+c%20é.parquet"
    native = f"{on_s3.policy.data_path}ns/t/failed.parquet"
    for path in (orphan, native):
        on_s3.store.write(path, b"x")
    assert find_orphans(on_s3, now_ms() - DAY_MS) == []
    found = find_orphans(on_s3, now_ms() + DAY_MS)
    assert sorted(file.location for file in found) == sorted([orphan, native])
    delete_orphans(on_s3, found)
    assert find_orphans(on_s3, now_ms() + DAY_MS) == []
    assert on_s3.store.exists(answer["metadata-location"])
