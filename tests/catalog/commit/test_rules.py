"""What the specification says of commits, on tables that DuckDB writes, too."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog import tables
from duckicelake.errors import CommitFailedError, InvalidRequestError, UnavailableError
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction
from tests.support import engine
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Draft,
    Json,
    Row,
    append,
    assert_files,
    assert_whole,
    data_files,
    duckdb_rows,
    hush,
    local,
    pyiceberg_rows,
    set_properties,
    set_ref,
)
from tests.support.row_lineage import lineage
from tests.support.seams import fresh

ROWS: list[Row] = [(number, f"r{number}") for number in range(5)]


def request(*updates: Json) -> Json:
    return {"requirements": [], "updates": list(updates)}


def upgrade(version: int) -> Json:
    return {"action": "upgrade-format-version", "format-version": version}


@pytest.fixture(params=["client", "ducklake"])
def numbered(client: Client, request: pytest.FixtureRequest) -> Client:
    """A client of a server in each mode."""
    return Client(replace(fresh(client.services), snapshot_ids=request.param))


def no_change(metadata: Json) -> list[list[Json]]:
    current = metadata["current-snapshot-id"]
    schema, spec = metadata["schemas"][0], {"fields": []}
    return [
        [],
        [{"action": "set-properties", "updates": {"a": "b"}}],
        [{"action": "set-properties", "updates": {"ducklake.snapshot-id": "7"}}],
        [{"action": "set-properties", "updates": {"x": "y"}}, {"action": "remove-properties", "removals": ["x"]}],
        [{"action": "remove-properties", "removals": ["absent", "ducklake.snapshot-id"]}],
        [set_ref("v1", current, "tag"), {"action": "remove-snapshot-ref", "ref-name": "v1"}],
        [set_ref("main", current)],
        [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}],
        [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}],
        [{"action": "set-location", "location": metadata["location"]}],
        [{"action": "remove-statistics", "snapshot-id": current}, upgrade(2)],
        [{"action": "remove-snapshots", "snapshot-ids": [1]}],
        [{"action": "remove-schemas", "schema-ids": [9]}, {"action": "remove-partition-specs", "spec-ids": [9]}],
    ]


def test_requests_that_come_to_nothing_make_no_version(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create(properties={"a": "b"})
    client.append(*ROWS)
    before, etag = client.load(), tables.load_table(client.services, NS, "t").etag
    newest = ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    for updates in no_change(before["metadata"]):
        answer = client.commit(request(*updates))
        assert answer["metadata-location"] == before["metadata-location"], updates
    assert client.load() == before
    assert tables.load_table(client.services, NS, "t").etag == etag
    assert ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall() == newest


def test_snapshots_that_are_each_others_parents_end_no_ones_request(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    drafts = [Draft(client.metadata()) for _ in range(2)]
    first, second = (
        draft.body([draft.manifest([draft.data_file(ROWS)])], parent_snapshot_id=other.snapshot_id)
        for draft, other in (drafts, drafts[::-1])
    )
    second["updates"][0]["snapshot"]["sequence-number"] = 2
    client.commit({**first, "updates": [*first["updates"], *second["updates"]]})
    add_column = client.metadata()["schemas"][0]
    add_column["fields"].append({"id": 3, "name": "more", "type": "int", "required": False})
    client.commit(
        request({"action": "add-schema", "schema": add_column}, {"action": "set-current-schema", "schema-id": -1})
    )
    assert len(duckdb_rows(ducklake)) == len(ROWS)


@pytest.mark.parametrize(
    "action", [{"action": "set-current-schema", "schema-id": -1}, {"action": "set-default-spec", "spec-id": -1},
               {"action": "set-default-sort-order", "sort-order-id": -1}],
)  # fmt: skip
def test_last_added_is_what_this_request_added(client: Client, action: Json) -> None:
    client.create()
    client.commit(request({"action": "add-spec", "spec": {"fields": []}}))
    with pytest.raises(InvalidRequestError, match="has been added"):
        client.commit(request(action))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_table_of_every_version_is_read_and_written_from_both_sides(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection, version: int
) -> None:
    created = numbered.create(properties={"format-version": str(version)})["metadata"]
    assert created["format-version"] == version
    assert "format-version" not in created["properties"]
    numbered.commit(engine.append(*ROWS)(numbered.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (10, 'DuckDB')")
    numbered.commit(engine.append((11, "again"))(numbered.metadata()))
    numbered.commit(engine.rewrite_rows([0], (0, "rewritten"))(numbered.metadata()))
    answer = numbered.load()
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)
    assert len(duckdb_rows(ducklake)) == 7
    numbers = [snapshot.get("sequence-number", 0) for snapshot in answer["metadata"]["snapshots"]]
    assert numbers == ([0] * 4 if version == 1 else sorted(set(numbers)))
    assert_whole(answer)


def check_upgraded(client: Client, duck: duckdb.DuckDBPyConnection, rows: int) -> Json:
    """Row ids of version 3 are DuckLake's, each is one row's, and the next one is free."""
    answer = client.load()
    assert_files(answer)
    assert pyiceberg_rows(answer) == duckdb_rows(duck)
    found = lineage(StaticTable.from_metadata(answer["metadata-location"]))
    assert len({row_id for row_id, _ in found}) == len(found) == rows
    assert sorted(duck.sql("SELECT rowid FROM lake.ns.t").fetchall()) == sorted((row_id,) for row_id, _ in found)
    assert answer["metadata"]["next-row-id"] > max(row_id for row_id, _ in found)
    return answer


@pytest.mark.parametrize("path", [[2, 3], [3]])
def test_upgrade_keeps_the_row_ids_that_ducklake_has_given(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection, path: list[int]
) -> None:
    numbered.create(properties={"format-version": "1"})
    numbered.commit(engine.append(*ROWS)(numbered.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (10, 'DuckDB')")
    numbered.commit(engine.append((11, "client"))(numbered.metadata()))
    before = dict(ducklake.sql("SELECT id, rowid FROM lake.ns.t").fetchall())
    for version in path:
        answer = numbered.commit(request(upgrade(version)))
        assert answer["metadata"]["format-version"] == version
        numbered.commit(engine.append((20 + version, "upgraded"))(numbered.metadata()))
    check_upgraded(numbered, ducklake, 7 + len(path))
    after = dict(ducklake.sql("SELECT id, rowid FROM lake.ns.t").fetchall())
    assert {id_: after[id_] for id_ in before} == before
    numbered.commit(engine.delete_rows([0, 11])(numbered.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (12, 'after')")
    check_upgraded(numbered, ducklake, 6 + len(path))


@pytest.mark.parametrize("first", [1, 2])
def test_upgrade_with_snapshots_in_the_same_request(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection, first: int
) -> None:
    numbered.create(properties={"format-version": str(first)})
    numbered.commit(engine.append(*ROWS)(numbered.metadata()))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (10, 'DuckDB')")
    before = dict(ducklake.sql("SELECT id, rowid FROM lake.ns.t").fetchall())
    upgraded = numbered.metadata() | {"format-version": 3, "next-row-id": 0}
    body = engine.then(engine.append((11, "new")), engine.append((12, "new")))(upgraded)
    numbered.commit({**body, "updates": [upgrade(2), upgrade(3), *body["updates"]]})
    check_upgraded(numbered, ducklake, 8)
    after = dict(ducklake.sql("SELECT id, rowid FROM lake.ns.t").fetchall())
    assert {id_: after[id_] for id_ in before} == before


def test_upgrade_between_snapshots_of_one_request(numbered: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    numbered.create()
    numbered.commit(engine.append(*ROWS)(numbered.metadata()))
    metadata = numbered.metadata()
    first = engine.append((10, "before"))(metadata)
    after = engine.applied(metadata, first) | {"format-version": 3, "next-row-id": 0}
    second = engine.append((11, "after"))(after)
    numbered.commit({**first, "updates": [*first["updates"], upgrade(3), *second["updates"]]})
    check_upgraded(numbered, ducklake, 7)
    numbered.commit(engine.append((12, "later"))(numbered.metadata()))
    check_upgraded(numbered, ducklake, 8)


def test_upgraded_table_can_go_back_to_a_snapshot_of_before(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    numbered.create()
    old = numbered.commit(engine.append(*ROWS)(numbered.metadata()))["metadata"]["current-snapshot-id"]
    numbered.commit(engine.delete_rows([0, 1])(numbered.metadata()))
    numbered.commit(request(upgrade(3)))
    numbered.commit(engine.append((10, "new"))(numbered.metadata()))
    answer = numbered.commit(request(set_ref("main", old)))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == ROWS
    numbered.commit(engine.append((11, "newer"))(numbered.metadata()))
    check_upgraded(numbered, ducklake, 6)


def test_snapshots_of_one_request_that_it_removes_again(numbered: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    """As a transaction of Java does that appends twice and then expires."""
    for version in (2, 3):
        name = f"t{version}"
        numbered.create(name, properties={"format-version": str(version)})
        numbered.commit(engine.append((1, "old"))(numbered.metadata(name)), name)
        base = numbered.metadata(name)
        body = engine.then(engine.append((2, "gone")), engine.rewrite_rows([1]), engine.append((3, "kept")))(base)
        added = [update["snapshot"]["snapshot-id"] for update in body["updates"] if "snapshot" in update]
        gone = {"action": "remove-snapshots", "snapshot-ids": [base["current-snapshot-id"], *added[:2]]}
        answer = numbered.commit({**body, "updates": [*body["updates"], gone]}, name)
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name) == [(2, "gone"), (3, "kept")]
        assert len(answer["metadata"]["snapshots"]) == len(answer["metadata"]["snapshot-log"]) == 1
        ducklake.execute(f"INSERT INTO lake.ns.{name} VALUES (4, 'DuckDB')")
        answer = numbered.commit(engine.delete_rows([2, 4])(numbered.metadata(name)), name)
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name) == [(3, "kept")]
        assert_files(answer)


def test_main_removed_leaves_an_empty_table_with_its_history(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    numbered.create()
    base = numbered.append(*ROWS)["metadata"]
    answer = numbered.commit(request({"action": "remove-snapshot-ref", "ref-name": "main"}))
    assert answer["metadata"].get("current-snapshot-id") is None
    assert duckdb_rows(ducklake) == pyiceberg_rows(answer) == []
    assert pyiceberg_rows(answer, base["current-snapshot-id"]) == ROWS
    answer = numbered.commit(request(set_ref("main", base["current-snapshot-id"])))
    assert duckdb_rows(ducklake) == pyiceberg_rows(answer) == ROWS


def test_refs_of_removed_snapshots_go_with_them(numbered: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    numbered.create()
    old = numbered.append(*ROWS)["metadata"]["current-snapshot-id"]
    statistics = {"snapshot-id": old, "statistics-path": "s3://b/s.puffin", "file-size-in-bytes": 4,
                  "file-footer-size-in-bytes": 2, "blob-metadata": []}  # fmt: skip
    partition = {"snapshot-id": old, "statistics-path": "s3://b/p.parquet", "file-size-in-bytes": 4}
    numbered.commit(
        request(
            set_ref("v1", old, "tag"),
            {"action": "set-statistics", "statistics": statistics},
            {"action": "set-partition-statistics", "partition-statistics": partition},
        )
    )
    new = numbered.append((10, "new"))["metadata"]
    assert (len(new["statistics"]), len(new["partition-statistics"])) == (1, 1)
    answer = numbered.commit(request({"action": "remove-snapshots", "snapshot-ids": [old]}))["metadata"]
    assert answer["refs"].keys() == {"main"}
    assert (answer["statistics"], answer["partition-statistics"]) == ([], [])
    assert [entry["snapshot-id"] for entry in answer["snapshot-log"]] == [new["current-snapshot-id"]]
    gone = numbered.commit(request({"action": "remove-snapshots", "snapshot-ids": [new["current-snapshot-id"]]}))
    assert gone["metadata"]["refs"] == {}
    assert gone["metadata"].get("current-snapshot-id") is None
    assert duckdb_rows(ducklake) == pyiceberg_rows(gone) == []


def test_encryption_keys_are_kept_through_commits_of_both_sides(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties={"format-version": "3"})
    key = {"key-id": "k1", "encrypted-key-metadata": "a2V5", "encrypted-by-id": "k0", "properties": {"a": "b"}}
    client.commit(request({"action": "add-encryption-key", "encryption-key": key}))
    draft = Draft(client.metadata(), format_version=3)
    client.commit(draft.body([draft.manifest([draft.data_file(ROWS)])], key_id="k1"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (10, 'DuckDB')")
    metadata = client.metadata()
    assert metadata["encryption-keys"] == [key]
    assert [snapshot.get("key-id") for snapshot in metadata["snapshots"]] == ["k1", None]
    removed = client.commit(request({"action": "remove-encryption-key", "key-id": "k1"}))["metadata"]
    assert removed.get("encryption-keys", []) == []


def test_identifier_fields_survive_alterations_by_duckdb(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    required = [{**SCHEMA["fields"][0], "required": True}, *SCHEMA["fields"][1:]]
    client.create(schema={**SCHEMA, "fields": required, "identifier-field-ids": [1]})
    ducklake.execute("ALTER TABLE lake.ns.t ADD COLUMN more INTEGER")
    assert client.metadata()["schemas"][-1]["identifier-field-ids"] == [1]


def partitioned_by(name: str, transform: str = "identity") -> list[Json]:
    field = {"source-id": 2, "name": name, "transform": transform}
    return [{"action": "add-spec", "spec": {"fields": [field]}}, {"action": "set-default-spec", "spec-id": -1}]


def append_partitioned(client: Client, row: Row) -> Json:
    """Append a row under the default spec, partitioned by the identity of its name."""
    draft = Draft(client.metadata(), format_version=client.metadata()["format-version"])
    spec = StaticTable.from_metadata(client.load()["metadata-location"]).spec()
    file = replace(draft.data_file([row]), partition=(row[1],))
    ours = PartitionSpec.model_validate(spec.model_dump(by_alias=True))
    return client.commit(draft.body([draft.manifest([file], ours), *draft.parent_manifests]))


def test_manifests_whose_headers_say_little_are_what_their_list_says(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.commit(request(*partitioned_by("part")))
    metadata = append_partitioned(client, (1, "a"))["metadata"]
    [path] = data_files(metadata)
    spec = PartitionSpec.model_validate(metadata["partition-specs"][1])
    draft = Draft(metadata, operation="overwrite")
    added = replace(draft.data_file([(2, "b")]), partition=("b",))
    deleted = replace(draft.delete_file([(path, 0)]), partition=("a",))
    with pytest.raises(InvalidRequestError, match="holds deletes, but its manifest list says data"):
        client.commit(draft.body([draft.manifest([deleted], spec, content=ManifestContent.DATA)]))
    lines = [draft.manifest([file], spec) for file in (added, deleted)]
    for line in lines:
        hush(local(line.manifest_path))
    answer = client.commit(draft.body([*lines, *draft.parent_manifests]))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(2, "b")]


def test_spec_that_files_of_the_history_have_is_kept(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    client.append((1, "plain"))
    client.commit(request(*partitioned_by("part")))
    partitioned = append_partitioned(client, (2, "a"))["metadata"]
    assert {spec["spec-id"] for spec in partitioned["partition-specs"]} == {0, 1}
    client.commit(engine.point("main", partitioned["snapshots"][0]["snapshot-id"])(client.metadata()))
    client.commit(request({"action": "set-default-spec", "spec-id": 0}))
    with pytest.raises(CommitFailedError, match="Cannot remove partition spec 1"):
        client.commit(request({"action": "remove-partition-specs", "spec-ids": [1]}))
    gone = {"action": "remove-snapshots", "snapshot-ids": [partitioned["current-snapshot-id"]]}
    answer = client.commit(request(gone, {"action": "remove-partition-specs", "spec-ids": [1]}))
    assert [spec["spec-id"] for spec in answer["metadata"]["partition-specs"]] == [0]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(1, "plain")]


def test_schema_that_a_snapshot_has_is_kept(client: Client) -> None:
    client.create()
    client.append((1, "one"))
    added = {"id": 3, "name": "more", "type": "int", "required": False}
    schema = {"type": "struct", "fields": [*SCHEMA["fields"], added]}
    client.commit(
        request({"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1})
    )
    with pytest.raises(CommitFailedError, match="Cannot remove schema 0"):
        client.commit(request({"action": "remove-schemas", "schema-ids": [0]}))


def test_partitions_of_a_column_that_no_schema_has_any_more_are_read(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """As Java leaves a table that expires old snapshots with what only they needed."""
    client.create()
    client.commit(request(*partitioned_by("part")))
    append_partitioned(client, (1, "a"))
    client.commit(request({"action": "set-default-spec", "spec-id": 0}))
    kept = {"type": "struct", "fields": SCHEMA["fields"][:1]}
    added = {"action": "add-schema", "schema": kept}
    client.commit(request(added, {"action": "set-current-schema", "schema-id": -1}))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2)")
    old = client.load()["metadata"]["snapshots"][0]["snapshot-id"]
    client.commit(
        request({"action": "remove-snapshots", "snapshot-ids": [old]}, {"action": "remove-schemas", "schema-ids": [0]})
    )
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3)")
    static = StaticTable.from_metadata(client.load()["metadata-location"])
    assert sorted(static.scan().to_arrow()["id"].to_pylist()) == [2, 3]
    assert ducklake.sql("SELECT id FROM lake.ns.t ORDER BY id").fetchall() == [(2,), (3,)]


@pytest.mark.parametrize("deleted", [False, True])
def test_old_metadata_files_are_deleted_where_the_table_says_so(client: Client, deleted: bool) -> None:
    properties = {"write.metadata.previous-versions-max": "2"}
    if deleted:
        properties["write.metadata.delete-after-commit.enabled"] = "true"
    client.create(properties=properties)
    locations = [client.append((number, None))["metadata-location"] for number in range(5)]
    there = [local(location).exists() for location in locations]
    assert there == ([False, False, True, True, True] if deleted else [True] * 5)
    assert_whole(client.load())


@dataclass
class Vanishing:
    """A database that no one can read from once something was committed to it."""

    database: Database
    has_gone: bool = False

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Transaction]:
        with self.database.transaction(pipelined=pipelined) as cursor:
            yield cursor
        self.has_gone = True

    def reading(self) -> AbstractContextManager[Transaction]:
        if self.has_gone:
            raise UnavailableError("Postgres does not answer")
        return self.database.reading()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.database, name)


def test_commit_whose_old_metadata_files_cannot_be_deleted_is_a_commit(client: Client) -> None:
    properties = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    client.create(properties=properties)
    locations = [client.append((number, None))["metadata-location"] for number in range(3)]
    database: Any = Vanishing(client.services.database)
    answer = Client(replace(client.services, database=database)).commit(append(client.metadata(), (3, None)))
    assert database.has_gone
    assert [local(location).exists() for location in locations] == [False, True, True]
    assert answer["metadata"] == Client(fresh(client.services)).metadata()
    client.append((4, None))
    assert not local(locations[2]).exists()


def test_many_old_metadata_files_go_at_once_when_the_property_is_set(client: Client) -> None:
    client.create()
    folder = local(client.metadata()["location"]) / "metadata"
    for number in range(5):
        client.commit(set_properties(a=str(number)))
    assert len(list(folder.glob("*.metadata.json"))) == 6
    limits = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    client.commit(set_properties(**limits))
    assert len(list(folder.glob("*.metadata.json"))) == 2
    assert_whole(client.load())


@pytest.mark.parametrize("mode", ["client", "ducklake"])
def test_id_that_a_client_takes_before_ducklake_does_is_avoided(
    client: Client, ducklake: duckdb.DuckDBPyConnection, mode: Any
) -> None:
    client.create()
    ((newest,),) = ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    for number in range(newest + 2, newest + 5):
        draft = Draft(client.metadata(), snapshot_id=number)
        client.commit(draft.body([draft.manifest([draft.data_file([(number, None)])]), *draft.parent_manifests]))
    served = Client(replace(fresh(client.services), snapshot_ids=mode))
    for number in range(100, 103):
        ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({number}, NULL)")
        answer = served.append((number + 100, None))
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)
    assert len(answer["metadata"]["snapshots"]) == len(duckdb_rows(ducklake)) == 9
    assert_whole(answer)


@pytest.mark.parametrize("times", [1, 2])
def test_snapshot_that_lists_its_manifests_itself_names_each_once(client: Client, times: int) -> None:
    client.create(properties={"format-version": "1"})
    draft = Draft(client.metadata(), format_version=1)
    line = draft.manifest([draft.data_file(ROWS)])
    body = draft.body([line])
    snapshot = body["updates"][0]["snapshot"]
    del snapshot["manifest-list"]
    snapshot["manifests"] = [line.manifest_path] * times
    if times == 1:
        client.commit(body)
        assert pyiceberg_rows(client.load()) == ROWS
    else:
        with pytest.raises(InvalidRequestError, match="lists 2 manifests: name each once"):
            client.commit(body)
