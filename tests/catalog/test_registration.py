"""Tables that another catalog wrote, registered here."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.transforms import IdentityTransform

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.errors import (
    AlreadyExistsError,
    CatalogError,
    CommitStateUnknownError,
    FileMissingError,
    InvalidRequestError,
    NoSuchNamespaceError,
    NoSuchTableError,
    UnsupportedError,
)
from duckicelake.iceberg.rest import RegisterTableRequest
from tests.support import engine
from tests.support.client import (
    ARROW,
    NS,
    Client,
    Draft,
    Json,
    Row,
    assert_files,
    data_files,
    duckdb_rows,
    hush,
    local,
    pyiceberg_rows,
    set_ref,
)
from tests.support.foreign_catalog import (
    CLEANERS,
    Foreign,
    new_foreign,
    register,
    rows_by_snapshot,
)
from tests.support.row_lineage import lineage
from tests.support.seams import fresh

ROWS: list[Row] = [(number, f"r{number}") for number in range(20)]
MAINTENANCE = ("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')", *CLEANERS)


@pytest.fixture
def zone(services: Services) -> str:
    """A folder for tables of other catalogs in the warehouse."""
    return f"{services.policy.data_zone}/elsewhere"


def with_history(other: Foreign) -> Foreign:
    """Give a foreign table snapshots of every kind that its version has, a branch, a tag and statistics."""
    first = other.commit(engine.append(*ROWS)(other.metadata()))["current-snapshot-id"]
    other.commit(engine.append((100, None))(other.metadata()))
    if other.metadata()["format-version"] > 1:
        other.commit(engine.delete_rows([3, 4, 100])(other.metadata()))
        other.commit(engine.delete_rows([5])(other.metadata()))
    other.commit(engine.append((200, "on a branch"), branch="b")(other.metadata()))
    other.commit({"requirements": [], "updates": [set_ref("v1", first, "tag")]})
    other.commit(engine.rewrite_rows([0, 1], (0, "rewritten"))(other.metadata()))
    file = {"snapshot-id": first, "statistics-path": f"{other.table.location()}/s.puffin", "file-size-in-bytes": 4,
            "file-footer-size-in-bytes": 2, "blob-metadata": []}  # fmt: skip
    other.commit({"requirements": [], "updates": [{"action": "set-statistics", "statistics": file}]})
    return other


@pytest.mark.parametrize("mode", ["client", "ducklake"])
@pytest.mark.parametrize("version", [1, 2])
def test_registered_table_has_the_whole_history_and_duckdb_reads_main(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str, version: int, mode: Any
) -> None:
    other = with_history(new_foreign(zone, version, properties={"owner": "them"}))
    client = Client(replace(fresh(client.services), snapshot_ids=mode))
    answer = register(client, other.location)
    theirs, ours = other.metadata(), answer["metadata"]
    assert rows_by_snapshot(answer["metadata-location"]) == rows_by_snapshot(other.location)
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(answer) == sorted(other_rows(other))
    assert_files(answer)
    for key in ("table-uuid", "format-version", "location", "refs", "current-snapshot-id", "snapshot-log",
                "statistics", "last-column-id"):  # fmt: skip
        assert ours.get(key) == theirs.get(key), key
    for key in ("schemas", "partition_specs", "sort_orders"):
        found = getattr(StaticTable.from_metadata(answer["metadata-location"]).metadata, key)
        assert found == getattr(other.table.metadata, key)
    assert ours.get("last-sequence-number") == (theirs["last-sequence-number"] if version > 1 else None)
    assert ours["properties"] == theirs["properties"] | {
        "ducklake.snapshot-id": ours["properties"]["ducklake.snapshot-id"]
    }
    registered = {"metadata-file": other.location, "timestamp-ms": theirs["last-updated-ms"]}
    assert ours["metadata-log"] == [*theirs["metadata-log"], registered]


def other_rows(other: Foreign) -> list[Row]:
    return [(row["id"], row["name"]) for row in other.table.scan().to_arrow().to_pylist()]


def test_table_whose_manifests_say_little_in_their_headers_is_registered(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = with_history(new_foreign(zone, 2))
    manifests = {m.manifest_path for s in other.table.snapshots() for m in s.manifests(other.table.io)}
    for path in manifests:
        hush(local(path))
    answer = register(client, other.location)
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(answer) == sorted(other_rows(other))


@pytest.mark.parametrize("mode", ["client", "ducklake"])
@pytest.mark.parametrize("version", [1, 2])
def test_work_goes_on_after_registration_from_both_sides(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str, version: int, mode: Any
) -> None:
    other = with_history(new_foreign(zone, version))
    client = Client(replace(fresh(client.services), snapshot_ids=mode))
    before = dict(other_rows(other))
    old = register(client, other.location)["metadata"]["snapshots"][0]["snapshot-id"]
    client.commit(engine.append((300, "after"))(client.metadata("r")), "r")
    ducklake.execute("DELETE FROM lake.ns.r WHERE id IN (6, 300)")
    ducklake.execute("INSERT INTO lake.ns.r VALUES (400, 'DuckDB')")
    gone = {6, 7, 400}
    delete = engine.rewrite_rows if version == 1 else engine.delete_rows
    answer = client.commit(delete([7, 400])(client.metadata("r")), "r")
    expected = sorted((id_, name) for id_, name in before.items() if id_ not in gone)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake, "r") == expected
    answer = client.commit(engine.point("main", old)(client.metadata("r")), "r")
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake, "r") == ROWS
    assert_files(answer)


def test_partitioned_table_with_two_specs_is_read_and_pruned_by_duckdb(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = new_foreign(zone)
    other.table.append(pa.Table.from_pylist([{"id": 1, "name": "no"}], ARROW))
    with other.table.update_spec() as update:
        update.add_field("name", IdentityTransform(), "part")
    other.table.append(pa.Table.from_pylist([{"id": 2, "name": "a"}, {"id": 3, "name": "b"}], ARROW))
    with other.table.update_spec() as update:
        update.remove_field("part")
        update.add_field("id", IdentityTransform(), "by_id")
    other.table.append(pa.Table.from_pylist([{"id": 4, "name": "ab"}, {"id": 5, "name": None}], ARROW))
    other.table.delete("id = 2")
    answer = register(client, other.location)
    assert rows_by_snapshot(answer["metadata-location"]) == rows_by_snapshot(other.location)
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(answer)
    assert ducklake.sql("SELECT id FROM lake.ns.r WHERE id = 4").fetchall() == [(4,)]
    ducklake.execute("INSERT INTO lake.ns.r VALUES (6, 'new')")
    assert pyiceberg_rows(client.load("r")) == duckdb_rows(ducklake, "r")


@pytest.mark.parametrize("appended", [False, True])
def test_table_upgraded_to_version_3_elsewhere_gets_row_ids_for_all_its_files(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str, appended: bool
) -> None:
    other = new_foreign(zone)
    other.commit(engine.append(*ROWS)(other.metadata()))
    other.commit(engine.append((100, "two"))(other.metadata()))
    upgraded = local(other.location).with_name("00009-upgraded.metadata.json")
    metadata = other.metadata() | {"format-version": 3, "next-row-id": 0}
    if appended:
        made = engine.append((101, "three"))(metadata)["updates"][0]["snapshot"]
        metadata |= {
            "snapshots": [*metadata["snapshots"], made],
            "current-snapshot-id": made["snapshot-id"],
            "refs": {"main": {"type": "branch", "snapshot-id": made["snapshot-id"]}},
            "last-sequence-number": made["sequence-number"],
            "next-row-id": made["first-row-id"] + made["added-rows"],
        }
    upgraded.write_text(json.dumps(metadata))
    register(client, f"file://{upgraded}")
    client.commit(engine.append((102, "after"))(client.metadata("r")), "r")
    answer = client.load("r")
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(answer)
    rows = lineage(StaticTable.from_metadata(answer["metadata-location"]))
    assert len({row_id for row_id, _ in rows}) == len(rows) == 22 + appended
    assert sorted(ducklake.sql("SELECT rowid FROM lake.ns.r").fetchall()) == sorted((row_id,) for row_id, _ in rows)
    if appended:  # newest first, as its manifest list has them
        ids = dict(ducklake.sql("SELECT id, rowid FROM lake.ns.r").fetchall())
        assert (ids[101], ids[100], ids[0], ids[19]) == (0, 1, 2, 21)


def test_equality_deletes_of_the_history_delete_for_duckdb_too(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = new_foreign(zone)
    other.commit(engine.append(*ROWS)(other.metadata()))
    other.commit(engine.delete_equal(3, 4)(other.metadata()))
    other.commit(engine.append((3, "again"), (100, "new"))(other.metadata()))
    other.commit(engine.delete_equal(100, 7)(other.metadata()))
    register(client, other.location)
    expected = sorted([*(row for row in ROWS if row[0] not in {3, 4, 7}), (3, "again")])
    assert duckdb_rows(ducklake, "r") == expected
    ducklake.execute("DELETE FROM lake.ns.r WHERE id = 8")
    older, newer = client.metadata("r")["snapshots"][:2]
    assert duckdb_rows(ducklake, "r") == [row for row in expected if row[0] != 8]
    client.commit(engine.point("main", newer["snapshot-id"])(client.metadata("r")), "r")
    assert duckdb_rows(ducklake, "r") == [row for row in ROWS if row[0] not in {3, 4}]
    client.commit(engine.point("main", older["snapshot-id"])(client.metadata("r")), "r")
    assert duckdb_rows(ducklake, "r") == ROWS


def test_deletion_vector_leaves_equality_deletes_in_force(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = new_foreign(zone)
    other.commit(engine.append(*ROWS)(other.metadata()))
    other.commit(engine.delete_equal(3, 4)(other.metadata()))
    register(client, other.location)
    client.commit({"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]}, "r")
    client.commit(engine.delete_rows([8])(client.metadata("r")), "r")
    assert duckdb_rows(ducklake, "r") == [row for row in ROWS if row[0] not in {3, 4, 8}]
    ducklake.execute("DELETE FROM lake.ns.r WHERE id = 9")
    client.commit(engine.append((9, "again"))(client.metadata("r")), "r")
    assert duckdb_rows(ducklake, "r") == sorted([*(row for row in ROWS if row[0] not in {3, 4, 8, 9}), (9, "again")])


def test_equality_deletes_that_stay_also_delete_from_files_added_later_as_older_ones(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    """Java's compaction adds its files under the sequence number at which it began."""
    other = new_foreign(zone)
    began = other.commit(engine.append(*ROWS)(other.metadata()))
    other.commit(engine.delete_equal(3, 4)(other.metadata()))
    register(client, other.location)
    draft = Draft(client.metadata("r"), "replace")
    late = replace(draft.added(draft.data_file(ROWS)), sequence_number=began["last-sequence-number"])
    (old,) = data_files(began)
    kept = [line for line in draft.parent_manifests if line.content.name == "DELETES"]
    body = draft.body([draft.manifest([late]), *kept])
    client.commit(body, "r")
    assert old not in data_files(client.metadata("r"))
    assert duckdb_rows(ducklake, "r") == [row for row in ROWS if row[0] not in {3, 4}]


def test_gzipped_metadata_is_read(client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str) -> None:
    other = with_history(new_foreign(zone))
    zipped = local(other.location).with_name("00042-x.gz.metadata.json")
    zipped.write_bytes(gzip.compress(local(other.location).read_bytes()))
    answer = register(client, f"file://{zipped}")
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(answer) == sorted(other_rows(other))


def damage(change: Callable[[Json], Json]) -> Callable[[Foreign], str]:
    def damaged(other: Foreign) -> str:
        path = local(other.location).with_name("99999-damaged.metadata.json")
        path.write_text(json.dumps(change(other.metadata())))
        return f"file://{path}"

    return damaged


def written(data: bytes) -> Callable[[Foreign], str]:
    def made(other: Foreign) -> str:
        path = local(other.location).with_name("99999-written.metadata.json")
        path.write_bytes(data)
        return f"file://{path}"

    return made


def without_manifest(other: Foreign) -> str:
    next(local(other.table.location()).glob("metadata/*m0.avro")).unlink()
    return other.location


@pytest.mark.parametrize(
    ("made", "error", "said"),
    [
        (lambda other: f"{other.location}.gone", FileMissingError, "no metadata file"),
        (lambda _: "file:///etc/passwd", InvalidRequestError, "must lie in"),
        (written(b"not json"), InvalidRequestError, "isn't a metadata.json"),
        (written(b"\x1f\x8bnot gzip"), InvalidRequestError, "isn't a metadata.json"),
        (written(b"[]"), InvalidRequestError, "format-version"),
        (written(b'{"format-version": 4}'), InvalidRequestError, "format-version"),
        (damage(lambda m: m | {"location": "file:///elsewhere/t"}), InvalidRequestError, "isn't below"),
        (damage(lambda m: m | {"current-snapshot-id": 5}), InvalidRequestError, "main isn't the current snapshot"),
        (damage(lambda m: m | {"snapshots": [m["snapshots"][0] | {"manifest-list": "file:///etc/passwd"}]}),
         InvalidRequestError, "main isn't the current snapshot|must lie in"),
        (damage(lambda m: m | {"partition-specs": []}), InvalidRequestError, "partition spec"),
        (damage(lambda m: m | {"properties": {"ducklake.append-rebase": "maybe"}}),
         InvalidRequestError, "ducklake.append-rebase is 'maybe': write true or false"),
        (without_manifest, InvalidRequestError, "does not exist"),
    ],
)  # fmt: skip
def test_metadata_that_is_none_is_refused_and_nothing_is_there(
    client: Client, zone: str, made: Callable[[Foreign], str], error: type[CatalogError], said: str
) -> None:
    other = new_foreign(zone)
    other.commit(engine.append(*ROWS)(other.metadata()))
    with pytest.raises(error, match=said):
        register(client, made(other))
    with pytest.raises(NoSuchTableError):
        client.load("r")


def test_files_that_ducklake_cannot_read_are_refused(client: Client, zone: str) -> None:
    other = new_foreign(zone)
    draft = Draft(other.metadata())
    other.commit(draft.body([draft.manifest([replace(draft.data_file(ROWS), file_format="ORC")])]))
    with pytest.raises(UnsupportedError, match="ORC"):
        register(client, other.location)


def test_name_that_a_table_or_view_has_is_refused(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = new_foreign(zone)
    client.create("r")
    ducklake.execute("CREATE VIEW lake.ns.v AS SELECT 1 AS i")
    for name, overwrite in (("r", False), ("v", False), ("v", True)):
        with pytest.raises(AlreadyExistsError):
            register(client, other.location, name, overwrite=overwrite)
    request = RegisterTableRequest(name="r", metadata_location=other.location, overwrite=True)
    with pytest.raises(NoSuchNamespaceError):
        tables.register_table(client.services, ("nowhere",), request)


def test_overwriting_puts_the_table_in_the_place_of_the_old_one_whose_files_stay(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    client.create("r")
    old = client.append((1, "old"), name="r")
    ducklake.execute("INSERT INTO lake.ns.r SELECT 2, 'old' FROM range(30)")
    old = client.load("r")
    other = with_history(new_foreign(zone))
    answer = register(client, other.location, overwrite=True)
    assert answer["metadata"]["table-uuid"] == other.metadata()["table-uuid"] != old["metadata"]["table-uuid"]
    assert "gc.enabled" not in answer["metadata"]["properties"]
    for statement in CLEANERS[:2]:
        ducklake.execute(statement)
    assert duckdb_rows(ducklake, "r") == sorted(other_rows(other))
    assert_files(old)
    again = register(client, old["metadata-location"], overwrite=True)
    assert again["metadata"]["table-uuid"] == old["metadata"]["table-uuid"]
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(old)


def test_registration_over_which_the_same_one_comes_at_once_is_answered_with_what_is_there(
    client: Client, zone: str
) -> None:
    """As of two requests to put it in the place of an older table, both of which are carried out."""
    other = new_foreign(zone)
    other.commit(engine.append((1, "row"))(other.metadata()))

    def supersede(_: object) -> None:
        register(client, other.location, overwrite=True)

    superseded = Client(replace(fresh(client.services), publish_audit=supersede))
    answer = register(superseded, other.location, overwrite=True)
    assert pyiceberg_rows(answer) == [(1, "row")]
    assert answer["metadata-location"] == client.load("r")["metadata-location"]


def test_registration_after_which_the_table_goes_at_once_is_of_unknown_outcome(client: Client, zone: str) -> None:
    other = new_foreign(zone)

    def drop(_: object) -> None:
        tables.drop_table(client.services, NS, "r", purge=True)

    with pytest.raises(CommitStateUnknownError, match="does not exist"):
        register(Client(replace(fresh(client.services), publish_audit=drop)), other.location)


def test_table_registered_under_two_names_keeps_the_files_of_both(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = with_history(new_foreign(zone))
    register(client, other.location, "one")
    register(client, other.location, "two")
    for name in ("one", "two"):
        assert client.metadata(name)["properties"]["gc.enabled"] == "false"
    ducklake.execute("DELETE FROM lake.ns.one")
    tables.drop_table(client.services, NS, "one", purge=True)
    for statement in MAINTENANCE:
        ducklake.execute(statement)
    answer = client.load("two")
    assert_files(answer)
    assert duckdb_rows(ducklake, "two") == pyiceberg_rows(answer) == sorted(other_rows(other))


def test_registered_table_that_is_guarded_lets_go_of_no_file_of_the_other_catalogs(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = with_history(new_foreign(zone, properties={"gc.enabled": "false"}))
    before = rows_by_snapshot(other.location)
    register(client, other.location)
    ducklake.execute("DELETE FROM lake.ns.r")
    metadata = client.metadata("r")
    gone = [each["snapshot-id"] for each in metadata["snapshots"][:-1]]
    unnamed = [{"action": "remove-snapshot-ref", "ref-name": name} for name in ("b", "v1")]
    updates = [*unnamed, {"action": "remove-snapshots", "snapshot-ids": gone}]
    client.commit({"requirements": [], "updates": updates}, "r")
    for statement in (*MAINTENANCE, *MAINTENANCE, "CHECKPOINT lake"):
        ducklake.execute(statement)
    assert {each["snapshot-id"] for each in client.metadata("r")["snapshots"]}.isdisjoint(gone)
    assert rows_by_snapshot(other.location) == before


@pytest.mark.parametrize("version", [2, 3])
def test_duckdb_maintenance_after_registration_deletes_nothing_that_is_needed(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str, version: int
) -> None:
    other = with_history(new_foreign(zone))
    register(client, other.location)
    if version == 3:
        client.commit({"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]}, "r")
    before = rows_by_snapshot(client.load("r")["metadata-location"])
    named = {ref["snapshot-id"] for name, ref in client.metadata("r")["refs"].items() if name != "main"}
    ducklake.execute("DELETE FROM lake.ns.r WHERE id IN (8, 9)")
    ducklake.execute("INSERT INTO lake.ns.r VALUES (500, 'inlined')")
    for statement in (*MAINTENANCE, "CHECKPOINT lake"):
        ducklake.execute(statement)
    answer = client.load("r")
    after = rows_by_snapshot(answer["metadata-location"])
    assert named <= after.keys()
    assert {id_: rows for id_, rows in after.items() if id_ in before} == {
        id_: rows for id_, rows in before.items() if id_ in after
    }
    assert_files(answer)
    expected = [row for row in other_rows(other) if row[0] not in {8, 9}]
    assert duckdb_rows(ducklake, "r") == pyiceberg_rows(answer) == sorted([*expected, (500, "inlined")])


def test_snapshot_ids_that_ducklake_comes_to_use_itself_do_no_harm(
    client: Client, ducklake: duckdb.DuckDBPyConnection, zone: str
) -> None:
    other = new_foreign(zone)
    for number in range(1, 40):
        draft = Draft(other.metadata(), snapshot_id=number)
        other.commit(draft.body([draft.manifest([draft.data_file([(number, None)])]), *draft.parent_manifests]))
    for mode in ("client", "ducklake"):
        served = Client(replace(fresh(client.services), snapshot_ids=mode))
        answer = register(served, other.location, overwrite=True)
        for number in range(3):
            ducklake.execute(f"INSERT INTO lake.ns.r VALUES ({100 + number}, 'DuckDB')")
            answer = served.append((200 + number, "client"), name="r")
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, "r")
        assert len(duckdb_rows(ducklake, "r")) == 45
        assert_files(answer)
