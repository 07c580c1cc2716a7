"""What the upkeep of tables is decided by, read from DuckLake's rows and ours."""

from dataclasses import replace

import duckdb
import pytest

from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.maintenance import FoundFile, TableStatistics, find_orphans, table_statistics
from duckicelake.catalog.namespaces import create_namespace, update_namespace
from duckicelake.errors import InvalidRequestError, NoSuchTableError
from tests.support.client import Client, data_files, delete, local, pyiceberg_rows, set_properties, set_ref
from tests.support.seams import fresh

SMALL_TARGET = {"write.target-file-size-bytes": "1000000"}


def of(services: Services, table: str = "t") -> TableStatistics:
    (found,) = table_statistics(services, PageRequest(), ("ns",), table).items
    return found


def rows(first: int, count: int) -> str:
    return f"SELECT range, 'x' FROM range({first}, {first + count})"


def test_files_of_both_sides_are_counted_with_their_deletes(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties=SMALL_TARGET)
    client.append((1, "x"), (2, "y"))
    ducklake.execute(f"INSERT INTO lake.ns.t {rows(100, 100)}")
    ducklake.execute(f"INSERT INTO lake.ns.t {rows(1000, 10)}")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id < 145")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id IN (150, 1001)")
    found = of(client.services)
    assert (found.files, found.records, found.deleted) == (2, 102, 48)
    assert (found.inlined_rows, found.files_with_deletes) == (9, 2)
    assert found.by_deleted_tenths == (2, 2, 2, 2, 1, 1, 1, 1, 1)
    assert (found.small_files, found.small_by_partition) == (2, {"2": 1})
    assert found.small_bytes == found.bytes == found.unsorted_bytes > 0
    assert found.inlined_oldest_ms is not None


def test_only_partitions_with_several_small_files_can_be_merged(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties=SMALL_TARGET)
    ducklake.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (id)")
    for number in (1, 1, 1, 2, 3):
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT {number}, 'x' FROM range(20)")
    assert of(client.services).small_by_partition == {"1": 2, "3": 1}
    client.metadata()
    assert of(client.services).small_by_partition == {"1": 2, "3": 1}


def test_files_that_are_large_enough_for_the_table_are_not_small(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties={"write.target-file-size-bytes": "100"})
    ducklake.execute(f"INSERT INTO lake.ns.t {rows(100, 100)}")
    assert (of(client.services).small_files, of(client.services).target_size) == (0, 100)


def test_history_and_manifests_are_iceberg_s(client: Client) -> None:
    client.create()
    ids = [client.append((number, "x"))["metadata"]["current-snapshot-id"] for number in range(3)]
    client.commit({"requirements": [], "updates": [set_ref("kept", ids[0], "tag")]})
    times = {each["snapshot-id"]: each["timestamp-ms"] for each in client.metadata()["snapshots"]}
    found = of(client.services)
    assert (found.snapshots, found.oldest_ms, found.current_ms) == (3, times[ids[1]], times[ids[2]])
    assert (found.manifests, found.small_manifests, found.described_ms) == (3, 3, None)


def test_only_tables_that_the_caller_may_read_are_listed_page_by_page(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE SCHEMA lake.other; CREATE TABLE lake.other.t (id BIGINT)")
    for number in range(3):
        client.create(f"t{number}")
    reader = Principal("reader", build_grants(["ns:ns:r"]))
    services = replace(client.services, caller=Caller(reader))
    names, token = [], ""
    while token is not None:
        page = table_statistics(services, PageRequest(token, 2))
        names += [(*found.namespace, found.table) for found in page.items]
        token = page.next_token  # type: ignore[assignment]
    assert names == [("ns", "t0"), ("ns", "t1"), ("ns", "t2")]
    with pytest.raises(InvalidRequestError, match="pageToken"):
        table_statistics(services, PageRequest("YWZ0ZXI6eA"))


def test_tables_that_the_caller_may_not_read_look_like_those_that_are_not_there(client: Client) -> None:
    client.create()
    services = replace(client.services, caller=Caller(Principal("stranger", build_grants(["ns:other:rw"]))))
    for table in ("t", "nothing"):
        with pytest.raises(NoSuchTableError, match=rf"^Table does not exist: ns\.{table}$"):
            of(services, table)


def test_what_a_client_says_of_its_snapshots_breaks_no_statistics(client: Client) -> None:
    client.create(properties={"format-version": "2"})
    client.append((1, "x"), (2, "y"))
    body = delete(client.metadata(), (data_files(client.metadata())[0], 1))
    (snapshot,) = [update["snapshot"] for update in body["updates"] if update["action"] == "add-snapshot"]
    snapshot["summary"]["total-delete-files"] = "many"
    client.commit(body)
    found = of(client.services)
    assert (found.delete_files, found.files_with_deletes, found.deleted) == (1, 1, 1)


def test_interval_that_postgres_does_not_know_is_reported_as_it_is(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.create("other")
    ducklake.execute("CALL lake.set_option('expire_older_than', '1 quarter', schema => 'ns', table_name => 't')")
    report = {found.table: found.policies for found in table_statistics(client.services, PageRequest()).items}
    assert report == {"t": {"expire_older_than": "1 quarter"}, "other": {}}


def test_orphans_are_what_no_row_names_and_what_lies_in_the_table(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.create("other")
    client.append((1, "x"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'inlined')")
    location = client.metadata()["location"]
    lost = local(f"{location}/data/lost.parquet")
    lost.write_bytes(b"of a writer that was killed")
    strange = local(f"{location}/data/notes.txt")
    strange.write_bytes(b"nobody's business")
    elsewhere = local(f"{client.metadata('other')['location']}/data/lost.parquet")
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(b"another table's")
    below = [path for path in local(location).rglob("*") if path.is_file()]
    asked = [FoundFile(location=f"file:{path}", size=1, modified_ms=0) for path in (*below, elsewhere)]
    assert len(asked) > 8
    orphans = find_orphans(client.services, ("ns",), "t", asked)
    assert [path for path in orphans if not path.endswith(".avro")] == [f"file:{lost}"]
    for path in orphans:
        local(path).unlink()
    assert pyiceberg_rows(Client(fresh(client.services)).load()) == [(1, "x"), (2, "inlined")]
    client.commit(set_properties(**{"gc.enabled": "false"}))
    assert find_orphans(client.services, ("ns",), "t", asked) == ()
    with pytest.raises(NoSuchTableError):
        find_orphans(client.services, ("ns",), "nothing", asked)


def test_policies_come_from_the_nearest_that_has_them(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    services = replace(client.services, maintenance={"maintenance.a": "catalog", "maintenance.b": "catalog"})
    create_namespace(services, ("up",), {"maintenance.b": "up", "maintenance.c": "up", "owner": "somebody"})
    create_namespace(services, ("up", "down"), {"maintenance.c": "down", "maintenance.d": "down"})
    for statement in (
        'CREATE TABLE lake."up.down".t (id BIGINT)',
        "CALL lake.set_option('target_file_size', '64MB')",
        "CALL lake.set_option('parquet_compression', 'snappy')",
        "CALL lake.set_option('expire_older_than', '2 days')",
        "CALL lake.set_option('expire_older_than', '3 days', schema => 'up.down')",
        "CALL lake.set_option('auto_compact', 'false', schema => 'up.down', table_name => 't')",
    ):
        ducklake.execute(statement)
    (found,) = table_statistics(services, PageRequest(), ("up",)).items
    assert found.policies == {
        "maintenance.a": "catalog",
        "maintenance.b": "up",
        "maintenance.c": "down",
        "maintenance.d": "down",
        "maintenance.compaction.enabled": "false",
        "write.target-file-size-bytes": "64000000",
        "expire_older_than": "3 days",
        "parquet_compression": "snappy",
    }
    assert found.target_size == 64_000_000
    update_namespace(services, ("up", "down"), ("maintenance.c",), {"maintenance.compaction.enabled": "true"})
    (found,) = table_statistics(services, PageRequest(), ("up", "down")).items
    assert (found.policies["maintenance.c"], found.policies["maintenance.compaction.enabled"]) == ("up", "true")
