"""DuckLake's options of a table are properties of the Iceberg table, whoever sets them; the last writer wins."""

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Any

import duckdb
import httpx
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema

from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.tables import commit_transaction, drop_table
from duckicelake.errors import CommitFailedError, InvalidRequestError, UnavailableError
from duckicelake.iceberg.rest import CommitTransactionRequest
from duckicelake.lake.model import MAX_INLINED_COLUMNS
from duckicelake.properties import build_options
from duckicelake.server.app import create_app
from tests.conftest import Attach
from tests.support.client import NS, SCHEMA, Client, Json, assert_whole, duckdb_rows, set_properties
from tests.support.foreign_catalog import new_foreign, register
from tests.support.lakes import Lake
from tests.support.seams import fresh
from tests.support.servers import running

CODEC, SIZE = "write.parquet.compression-codec", "write.target-file-size-bytes"
SET = {
    "target_file_size": ("64MB", SIZE, "64000000"),
    "parquet_compression": ("zstd", CODEC, "zstd"),
    "parquet_version": ("2", "ducklake.parquet-version", "V2"),
    "parquet_compression_level": ("3", "ducklake.parquet-compression-level", "3"),
    "parquet_row_group_size": ("1000", "ducklake.parquet-row-group-size", "1000"),
    "parquet_row_group_size_bytes": ("1MB", "ducklake.parquet-row-group-size-bytes", "1000000"),
    "data_inlining_row_limit": ("5", "ducklake.data-inlining-row-limit", "5"),
    "hive_file_pattern": (False, "ducklake.hive-file-pattern", "false"),
    "require_commit_message": (False, "ducklake.require-commit-message", "false"),
    "per_thread_output": ("true", "ducklake.per-thread-output", "true"),
    "sort_on_insert": ("false", "ducklake.sort-on-insert", "false"),
    "write_deletion_vectors": ("true", "ducklake.write-deletion-vectors", "true"),
    "auto_compact": ("false", "ducklake.auto-compact", "false"),
    "rewrite_delete_threshold": ("0.5", "ducklake.rewrite-delete-threshold", "0.500000"),
    "delete_older_than": ("7 days", "ducklake.delete-older-than", "7 days"),
    "expire_older_than": ("1 day", "ducklake.expire-older-than", "1 day"),
}
"""By option: the value that DuckDB is given, the property, and its text."""
SHOWN = {name: text for _, name, text in SET.values()}


def set_option(duck: duckdb.DuckDBPyConnection, option: str, value: object, table: str = "t") -> None:
    duck.execute(f"CALL lake.set_option('{option}', ?, schema => 'ns', table_name => '{table}')", [value])


def remove_properties(*names: str) -> Json:
    return {"requirements": [], "updates": [{"action": "remove-properties", "removals": names}]}


def options_of(services: Services, table: str = "t") -> Mapping[str, str]:
    """What ducklake_metadata has of the table."""
    table_id = load_current_table(services, NS, table).row.table_id
    with services.database.reading() as cursor:
        query = "SELECT key, value FROM ducklake_metadata WHERE scope = 'table' AND scope_id = %s"
        found = cursor.execute(query, [table_id]).fetchall()
    assert len(found) == len(dict(found)), "an option has two rows"
    return dict(found)


def properties_of(services: Services, table: str = "t") -> dict[str, str]:
    """The properties but the one that names a snapshot."""
    found = load_current_table(services, NS, table).metadata.properties
    return {name: text for name, text in found.items() if name != "ducklake.snapshot-id"}


def epoch(services: Services) -> int:
    with services.database.reading() as cursor:
        ((found,),) = cursor.execute("SELECT epoch FROM duckicelake_epoch").fetchall()
    return int(found)


def test_option_that_duckdb_sets_is_a_property_at_every_servers_next_load(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"))
    other = Client(fresh(client.services))
    before = client.load()
    assert other.load() == before
    set_option(ducklake, "target_file_size", "64MB")
    for each in (client, other, Client(fresh(client.services))):
        answer = each.load()
        assert answer["metadata"]["properties"].items() >= {SIZE: "64000000", CODEC: "zstd"}.items()
        assert len(answer["metadata"]["metadata-log"]) == len(before["metadata"]["metadata-log"]) + 1
        assert answer["metadata"]["metadata-log"][-1]["metadata-file"] == before["metadata-location"]
        assert answer["metadata"]["last-updated-ms"] >= before["metadata"]["last-updated-ms"]
        assert answer["metadata"]["snapshots"] == before["metadata"]["snapshots"]
        assert_whole(answer)
    assert client.load() == answer
    set_option(ducklake, "target_file_size", "1MB")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'b')")
    assert other.metadata()["properties"][SIZE] == "1000000"
    assert len(client.metadata()["snapshots"]) == 2
    set_option(ducklake, "target_file_size", "1MB")
    assert client.load() == other.load()
    assert len(client.metadata()["metadata-log"]) == len(before["metadata"]["metadata-log"]) + 2


def test_options_of_other_scopes_are_no_properties_of_a_table(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    before = client.load()
    ducklake.execute("CALL lake.set_option('target_file_size', '64MB')")
    ducklake.execute("CALL lake.set_option('target_file_size', '32MB', schema => 'ns')")
    assert client.load() == before


def test_each_option_is_shown_before_the_first_load_and_after_it(client: Client, attach: Attach) -> None:
    for table in ("early", "late"):
        attach().execute(f"CREATE TABLE lake.ns.{table} (i INTEGER)")
    duck = attach()
    load_current_table(client.services, NS, "late")
    for option, (value, _, _) in SET.items():
        set_option(duck, option, value, "early")
        set_option(duck, option, value, "late")
    for table in ("early", "late"):
        assert properties_of(client.services, table).items() >= SHOWN.items()
        assert options_of(client.services, table) == {option: text for option, (_, _, text) in SET.items()}
    assert load_current_table(client.services, NS, "early").row.version == 0


def test_each_property_is_an_option_that_duckdb_obeys(client: Client, attach: Attach) -> None:
    client.create()
    wanted = SHOWN | {"ducklake.require-commit-message": "false", CODEC: "ZSTD"}
    at = epoch(client.services)
    client.commit(set_properties(**wanted))
    taken = {option: text for option, (_, _, text) in SET.items() if option != "parquet_row_group_size_bytes"}
    assert options_of(client.services) == taken
    assert properties_of(client.services).items() >= wanted.items()
    duck = attach()
    duck.execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(10)")
    duck.execute("DELETE FROM lake.ns.t WHERE id = 3")
    rows = [(i, "x") for i in range(10) if i != 3]
    assert duckdb_rows(duck) == rows
    assert epoch(client.services) == at, "what a commit sets makes no other table's cache outdated"
    assert properties_of(client.services).items() >= wanted.items()
    client.commit(remove_properties(*wanted))
    assert options_of(client.services) == {}
    assert not properties_of(client.services).keys() & wanted.keys()


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw"])
def test_duckdb_writes_with_a_clients_codec(client: Client, attach: Attach, warehouse: Path, codec: str) -> None:
    client.create(properties={CODEC: codec})
    attach().execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(1000)")
    (file,) = (warehouse / "ducklake" / "ns" / "t").glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == codec.upper().replace("LZ4_RAW", "LZ4")


def test_duckdb_writes_files_of_a_clients_size(client: Client, attach: Attach, warehouse: Path) -> None:
    client.create(properties={SIZE: "100000"})
    attach().execute("INSERT INTO lake.ns.t SELECT range, md5(range::VARCHAR) FROM range(300000)")
    assert len(list((warehouse / "ducklake" / "ns" / "t").glob("*.parquet"))) > 1


@pytest.mark.parametrize(
    ("bad", "option"),
    [
        ({CODEC: "lzo"}, "parquet_compression"),
        ({CODEC: "none"}, "parquet_compression"),
        ({CODEC: ""}, "parquet_compression"),
        ({SIZE: "64MB"}, "target_file_size"),
        ({SIZE: "-1"}, "target_file_size"),
        ({SIZE: "0"}, "target_file_size"),
        ({SIZE: "18446744073709551615"}, "target_file_size"),
        ({CODEC: "snappy", "ducklake.parquet-compression-level": "3"}, "parquet_compression_level"),
        ({"ducklake.parquet-row-group-size-bytes": "1000000"}, "parquet_row_group_size_bytes"),
    ],
)
def test_value_that_duckdb_does_not_take_stays_a_property_and_is_no_option(
    client: Client, attach: Attach, bad: dict[str, str], option: str
) -> None:
    client.create(properties={SIZE: "1000000", "ducklake.parquet-compression-level": "5"})
    client.commit(set_properties(**bad))
    attach().execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(1000)")
    assert option not in options_of(client.services)
    set_option(attach(), "auto_compact", "false")
    assert properties_of(client.services).items() >= {**bad, "ducklake.auto-compact": "false"}.items()
    assert option not in options_of(client.services)
    client.commit(set_properties(comment="again"))
    assert properties_of(client.services).items() >= bad.items()


def test_codec_stays_a_property_where_the_lake_has_a_level_for_zstd(client: Client, attach: Attach) -> None:
    for option, value in (("parquet_compression", "zstd"), ("parquet_compression_level", "10")):
        attach().execute(f"CALL lake.set_option('{option}', '{value}')")
    client.create(properties={CODEC: "gzip"})
    attach().execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(1000)")
    set_option(attach(), "target_file_size", "64MB")
    assert properties_of(client.services) == {CODEC: "gzip", SIZE: "64000000"}
    assert options_of(client.services) == {"target_file_size": "64000000"}
    client.commit(set_properties(**{CODEC: "zstd"}))
    attach().execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(1000)")
    assert options_of(client.services) == {"target_file_size": "64000000", "parquet_compression": "zstd"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ducklake.data-inlining-row-limit", "-1", "write a number of rows"),
        ("ducklake.parquet-version", "3", "write V1 or V2"),
        ("ducklake.parquet-compression-level", "23", "write a number from 1 to 22"),
        ("ducklake.auto-compact", "no", "write true or false"),
        ("ducklake.rewrite-delete-threshold", "2", "write a number from 0 to 1"),
        ("ducklake.expire-older-than", "long", "like '7 days'"),
        ("ducklake.autocompact", "false", "did you mean ducklake.auto-compact"),
    ],
)
def test_property_that_only_ducklake_has_needs_a_value_of_its_form(
    client: Client, name: str, text: str, said: str
) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match=said):
        client.commit(set_properties(**{name: text}))


def test_option_that_is_deleted_by_hand_is_a_property_no_longer(client: Client, services: Services) -> None:
    client.create(properties={SIZE: "1000000", "kept": "x"})
    with services.database.transaction() as cursor:
        cursor.execute("DELETE FROM ducklake_metadata WHERE key = 'target_file_size' AND scope = 'table'")
    assert properties_of(services) == {"kept": "x", CODEC: "zstd"}


def test_options_that_a_later_duckdb_may_have_are_shown_unless_they_are_called_as_ours(
    client: Client, services: Services
) -> None:
    client.create()
    table_id = load_current_table(services, NS, "t").row.table_id
    with services.database.transaction() as cursor:
        for key in ("of_tomorrow", "absorb_rows", "snapshot_id"):
            cursor.execute("INSERT INTO ducklake_metadata VALUES (%s, 'x', 'table', %s)", [key, table_id])
    assert properties_of(services) == {CODEC: "zstd", "ducklake.of-tomorrow": "x"}
    client.commit(set_properties(comment="c"))
    assert set(options_of(services)) == {"of_tomorrow", "absorb_rows", "snapshot_id", "parquet_compression"}


def test_last_writer_wins_though_the_other_side_has_not_seen_the_first(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    other = Client(fresh(client.services))
    other.load()
    set_option(ducklake, "parquet_compression", "gzip")
    set_option(ducklake, "target_file_size", "2MB")
    other.commit(set_properties(**{CODEC: "snappy"}))
    assert options_of(client.services) == {"parquet_compression": "snappy", "target_file_size": "2000000"}
    for services in (client.services, other.services):
        assert properties_of(services) == {CODEC: "snappy", SIZE: "2000000"}
    set_option(ducklake, "parquet_compression", "brotli")
    assert properties_of(other.services)[CODEC] == "brotli"


def test_both_sides_agree_after_they_set_an_option_at_once(client: Client, attach: Attach) -> None:
    client.create()
    ducks = [attach() for _ in range(2)]
    barrier = Barrier(3)

    def run_duckdb(duck: duckdb.DuckDBPyConnection, value: str) -> None:
        for _ in range(5):
            barrier.wait()
            with suppress(duckdb.Error):  # "could not serialize access": it may be called again
                set_option(duck, "target_file_size", value)

    def run_client() -> None:
        for number in range(5):
            barrier.wait()
            client.commit(set_properties(**{SIZE: f"{number + 1}000"}))

    with ThreadPoolExecutor(3) as pool:
        for done in [
            pool.submit(run_duckdb, ducks[0], "7MB"),
            pool.submit(run_duckdb, ducks[1], "8MB"),
            pool.submit(run_client),
        ]:
            done.result()
    shown = properties_of(client.services)[SIZE]
    report = attach().sql("SELECT value FROM lake.options() WHERE option_name = 'target_file_size' AND scope = 'TABLE'")
    assert (shown,) in report.fetchall()
    assert Client(fresh(client.services)).metadata()["properties"][SIZE] == shown
    client.commit(set_properties(**{SIZE: "9000"}))
    assert options_of(client.services)["target_file_size"] == "9000"
    assert properties_of(client.services)[SIZE] == "9000"


def test_client_does_not_wait_long_for_an_open_transaction_of_duckdb(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    set_option(ducklake, "target_file_size", "2MB")
    client.load()
    ducklake.execute("BEGIN")
    set_option(ducklake, "target_file_size", "3MB")
    client.commit(set_properties(other="x"))
    client.commit(set_properties(**{CODEC: "gzip"}))
    began = time.monotonic()
    with pytest.raises(UnavailableError, match="nothing was written, try again"):
        client.commit(set_properties(**{SIZE: "77"}))
    assert time.monotonic() - began < 15
    ducklake.execute("COMMIT")
    assert properties_of(client.services).items() >= {SIZE: "3000000", CODEC: "gzip", "other": "x"}.items()


def test_pyiceberg_and_duckdb_share_options_by_way_of_two_servers(services: Services, attach: Attach) -> None:
    duck = attach()
    with (
        running(create_app(services)) as uri,
        running(create_app(fresh(services))) as other_uri,
        RestCatalog("lake", uri=uri) as catalog,
    ):
        catalog.create_namespace(NS)
        table = catalog.create_table((*NS, "t"), Schema.model_validate(SCHEMA), properties={CODEC: "gzip"})
        urls = [f"{each}/v1/namespaces/ns/tables/t" for each in (uri, other_uri)]
        tags = {url: httpx.get(url).headers["etag"] for url in urls}
        set_option(duck, "target_file_size", "64MB")
        for url, tag in tags.items():
            changed = httpx.get(url, headers={"If-None-Match": tag})
            assert changed.json()["metadata"]["properties"].items() >= {SIZE: "64000000", CODEC: "gzip"}.items()
            assert httpx.get(url, headers={"If-None-Match": changed.headers["etag"]}).status_code == 304
        with table.refresh().transaction() as transaction:
            transaction.remove_properties(SIZE)
            transaction.set_properties({CODEC: "brotli", "ducklake.auto-compact": "false"})
        assert options_of(services) == {"parquet_compression": "brotli", "auto_compact": "false"}
        shown = attach().sql("SELECT option_name, value FROM lake.options() WHERE scope = 'TABLE' ORDER BY 1")
        assert shown.fetchall() == [("auto_compact", "false"), ("parquet_compression", "brotli")]
        found = httpx.get(other_uri + "/v1/namespaces/ns/tables/t").json()["metadata"]["properties"]
        assert SIZE not in found
        assert found[CODEC] == "brotli"


def check_options(services: Services, table: str, **expected: str) -> None:
    properties = properties_of(services, table)
    assert options_of(services, table) == build_options(properties) == expected


def test_every_way_to_make_a_table_brings_its_options(client: Client, services: Services) -> None:
    given = {SIZE: "1000000", CODEC: "GZIP", "ducklake.auto-compact": "false"}
    expected = {"target_file_size": "1000000", "parquet_compression": "gzip", "auto_compact": "false"}
    client.create("plain", properties=given)
    check_options(services, "plain", **expected)
    staged = client.create("staged", properties=given, stage_create=True)["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
        {"action": "set-properties", "updates": given},
    ]
    client.commit({"requirements": [{"type": "assert-create"}], "updates": updates}, "staged")
    check_options(services, "staged", **expected)
    clone_table(services, NS, "cloned", CloneRequest((NS, "plain")))
    check_options(services, "cloned", **expected)
    other = new_foreign(f"{services.policy.data_zone}/elsewhere", properties={**given, "ducklake.sort-on-insert": "x"})
    register(client, other.location, "registered")
    check_options(services, "registered", **expected)
    assert properties_of(services, "registered")["ducklake.sort-on-insert"] == "x"
    register(client, other.location, "plain", overwrite=True)
    check_options(services, "plain", **expected)


@pytest.mark.parametrize("purge", [True, False])
def test_dropped_table_leaves_no_options(client: Client, services: Services, *, purge: bool) -> None:
    client.create()
    client.create("other")
    at = epoch(services)
    drop_table(services, NS, "t", purge=purge)
    with services.database.reading() as cursor:
        assert cursor.execute("SELECT count(*) FROM ducklake_metadata WHERE scope = 'table'").fetchall() == [(1,)]
    assert options_of(services, "other") == {"parquet_compression": "zstd"}
    assert epoch(services) == at


def test_transaction_sets_options_of_several_tables_or_of_none(client: Client, services: Services) -> None:
    client.create("a")
    client.create("b")

    def change(size: str, *requirements: Json) -> CommitTransactionRequest:
        changes: list[dict[str, Any]] = [
            {
                "identifier": {"namespace": list(NS), "name": name},
                "requirements": requirements,
                "updates": [{"action": "set-properties", "updates": {SIZE: size}}],
            }
            for name in ("a", "b")
        ]
        return CommitTransactionRequest.model_validate({"table-changes": changes})

    commit_transaction(services, change("5000"))
    for name in ("a", "b"):
        check_options(services, name, target_file_size="5000", parquet_compression="zstd")
    with pytest.raises(CommitFailedError, match="UUID does not match"):
        commit_transaction(
            services,
            change("6000", {"type": "assert-table-uuid", "uuid": client.metadata("a")["table-uuid"]}),
        )
    for name in ("a", "b"):
        check_options(services, name, target_file_size="5000", parquet_compression="zstd")


def test_too_wide_a_table_inlines_no_rows_whatever_its_property_says(
    client: Client, services: Services, attach: Attach
) -> None:
    fields = [{**SCHEMA["fields"][0], "id": i, "name": f"c{i}"} for i in range(1, MAX_INLINED_COLUMNS + 2)]
    limit = "ducklake.data-inlining-row-limit"
    created = client.create(schema={**SCHEMA, "fields": fields}, properties={limit: "100"})
    assert created["metadata"]["properties"][limit] == "0"
    for change in (set_properties(**{limit: "50"}), remove_properties(limit)):
        assert properties_of(services)[limit] == options_of(services)["data_inlining_row_limit"] == "0"
        client.commit(change)
    assert options_of(services)["data_inlining_row_limit"] == "0"
    Lake(services, attach()).run("INSERT INTO lake.ns.t (c1) VALUES (2)")
