"""Commits of one client after the other: requirements, retries by the server, history, properties, ETags."""

from collections.abc import Callable
from dataclasses import replace

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.errors import AlreadyExistsError, CommitFailedError, NoSuchTableError
from duckicelake.iceberg.rest import CreateTableRequest
from duckicelake.postgres.queries import BATCH_ROWS
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Draft,
    Json,
    append,
    assert_whole,
    data_files,
    duckdb_rows,
    pyiceberg_rows,
    remove,
    set_properties,
)
from tests.support.seams import fresh

ONE, TWO, THREE = (1, "one"), (2, "two"), (3, "three")


def requires(kind: str, **values: object) -> Json:
    return {"type": kind, **{name.replace("_", "-"): value for name, value in values.items()}}


FAILING = [
    requires("assert-create"),
    requires("assert-table-uuid", uuid="00000000-0000-0000-0000-000000000000"),
    requires("assert-ref-snapshot-id", ref="main", snapshot_id=None),
    requires("assert-ref-snapshot-id", ref="main", snapshot_id=7),
    requires("assert-ref-snapshot-id", ref="nope", snapshot_id=7),
    requires("assert-last-assigned-field-id", last_assigned_field_id=7),
    requires("assert-current-schema-id", current_schema_id=7),
    requires("assert-last-assigned-partition-id", last_assigned_partition_id=7),
    requires("assert-default-spec-id", default_spec_id=7),
    requires("assert-default-sort-order-id", default_sort_order_id=7),
]


def test_requirement_that_does_not_hold_is_a_conflict_and_changes_nothing(client: Client) -> None:
    client.create()
    before = client.append(ONE)
    for requirement in FAILING:
        with pytest.raises(CommitFailedError, match=r"^Requirement failed: "):
            client.commit({**set_properties(a="b"), "requirements": [requirement]})
    assert client.load()["metadata"] == before["metadata"]


def test_requirements_that_hold_let_the_commit_through(client: Client) -> None:
    client.create()
    metadata = client.append(ONE)["metadata"]
    holding = [
        requires("assert-table-uuid", uuid=metadata["table-uuid"].upper()),
        requires("assert-ref-snapshot-id", ref="main", snapshot_id=metadata["current-snapshot-id"]),
        requires("assert-ref-snapshot-id", ref="nope", snapshot_id=None),
        requires("assert-last-assigned-field-id", last_assigned_field_id=2),
        requires("assert-current-schema-id", current_schema_id=0),
        requires("assert-last-assigned-partition-id", last_assigned_partition_id=999),
        requires("assert-default-spec-id", default_spec_id=0),
        requires("assert-default-sort-order-id", default_sort_order_id=0),
    ]
    assert client.commit({**set_properties(a="b"), "requirements": holding})["metadata"]["properties"]["a"] == "b"


def test_append_computed_before_others_set_properties_is_committed_by_the_server(client: Client) -> None:
    stale = client.create()["metadata"]
    client.commit(set_properties(a="1"))
    client.commit(append(stale, ONE))
    answer = client.commit(
        {**set_properties(b="2"), "requirements": [requires("assert-current-schema-id", current_schema_id=0)]}
    )
    properties = answer["metadata"]["properties"]
    assert (properties["a"], properties["b"]) == ("1", "2")
    assert pyiceberg_rows(answer) == [ONE]


def test_append_on_a_main_that_has_moved_is_a_conflict(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    stale = client.create()["metadata"]
    client.commit(append(stale, ONE))
    with pytest.raises(CommitFailedError, match="Requirement failed"):
        client.commit(append(stale, TWO))
    assert duckdb_rows(ducklake) == [ONE]


def test_append_on_a_main_that_duckdb_moved_is_a_conflict(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    stale = client.append(ONE)["metadata"]
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'two')")
    with pytest.raises(CommitFailedError, match="Requirement failed"):
        client.commit(append(stale, THREE))
    answer = client.append(THREE)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [ONE, TWO, THREE]
    assert_whole(answer)


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "set-properties", "updates": {"a": "b"}}],
        [{"action": "remove-properties", "removals": ["never-there"]}],
        [{"action": "set-properties", "updates": {"ducklake.snapshot-id": "12345"}}],
        [{"action": "upgrade-format-version", "format-version": 2}],
        [{"action": "add-schema", "schema": SCHEMA}, {"action": "set-current-schema", "schema-id": 0}],
        [{"action": "add-spec", "spec": {"fields": []}}, {"action": "set-default-spec", "spec-id": -1}],
        [{"action": "remove-snapshots", "snapshot-ids": [404]}],
        [{"action": "remove-snapshot-ref", "ref-name": "nope"}],
        [{"action": "remove-statistics", "snapshot-id": 404}],
    ],
    ids=lambda updates: "-".join(update["action"] for update in updates) or "nothing",
)
def test_commit_that_changes_nothing_makes_no_version(client: Client, updates: list[Json]) -> None:
    client.create()
    client.append(ONE)
    before = client.commit(set_properties(a="b"))
    newest = newest_snapshot(client)
    assert client.commit({"requirements": [], "updates": updates}) == before
    assert newest_snapshot(client) == newest
    assert {key: value for key, value in client.load().items() if key != "config"} == before


def newest_snapshot(client: Client) -> int:
    with client.services.database.reading() as cursor:
        row = cursor.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()
    assert row is not None
    return int(row[0])


def test_another_version_of_the_same_number_has_another_etag(client: Client) -> None:
    """As after a failover that has lost a commit."""
    client.create()
    with client.services.database.reading() as cursor:
        before = cursor.execute("SELECT version, metadata FROM duckicelake_table").fetchone()
    assert before is not None
    client.commit(set_properties(a="1"))
    lost = tables.load_table(client.services, NS, "t")
    with client.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_table SET (version, metadata) = (%s, %s)", before)
        cursor.execute("DELETE FROM duckicelake_artifact WHERE object_id > %s", before[:1])
    client = Client(fresh(client.services))
    client.commit(set_properties(a="2"))
    assert tables.load_table(client.services, NS, "t").etag != lost.etag


def test_commits_to_other_tables_change_neither_metadata_nor_etag(client: Client) -> None:
    client.create()
    client.create("other")
    client.append(ONE)
    before = tables.load_table(client.services, NS, "t")
    client.append(TWO, name="other")
    assert tables.load_table(client.services, NS, "t") == before
    client.append(TWO)
    assert tables.load_table(client.services, NS, "t").etag != before.etag


def test_staged_creation_is_invisible_until_its_commit(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    staged = client.create(stage_create=True)
    assert "metadata-location" not in staged
    with pytest.raises(NoSuchTableError):
        client.load()
    answer = client.commit(creation(staged["metadata"], ONE))
    assert answer["metadata"]["table-uuid"] == staged["metadata"]["table-uuid"]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [ONE]
    assert_whole(answer)


def creation(staged: Json, *rows: tuple[int, str]) -> Json:
    """The commit that creates a staged table with its first rows."""
    first = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": staged["schemas"][0], "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    body = append(staged, *rows)
    return {"requirements": [requires("assert-create")], "updates": [*first, *body["updates"]]}


def test_second_of_two_stagers_has_a_conflict(client: Client) -> None:
    first, second = client.create(stage_create=True)["metadata"], client.create(stage_create=True)["metadata"]
    client.commit(creation(second, TWO))
    with pytest.raises(CommitFailedError, match=r"^Requirement failed: table already exists"):
        client.commit(creation(first, ONE))
    assert pyiceberg_rows(client.load()) == [TWO]
    with pytest.raises(AlreadyExistsError):
        client.create(stage_create=True)


def test_several_snapshots_of_one_commit_are_contiguous_in_ducklake(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    base = client.append(ONE, TWO)["metadata"]
    newest = newest_snapshot(client)
    draft = Draft(base)
    deletion = remove(base, *data_files(base))
    snapshot = deletion["updates"][0]["snapshot"]
    between = {
        **base,
        "current-snapshot-id": snapshot["snapshot-id"],
        "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        "snapshots": [*base["snapshots"], snapshot],
        "last-sequence-number": draft.sequence_number,
    }
    body = append(between, THREE)
    answer = client.commit({**deletion, "updates": [*deletion["updates"], *body["updates"]]})
    metadata = answer["metadata"]
    assert [int(each["summary"]["ducklake.snapshot-id"]) for each in metadata["snapshots"][-2:]] == [
        newest + 1,
        newest + 2,
    ]
    assert newest_snapshot(client) == newest + 2
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [
        base["current-snapshot-id"],
        metadata["current-snapshot-id"],
    ]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [THREE]
    assert ducklake.sql(f"FROM lake.ns.t AT (VERSION => {newest + 1})").fetchall() == []
    assert ducklake.sql(f"FROM lake.ns.t AT (VERSION => {newest}) ORDER BY id").fetchall() == [ONE, TWO]
    assert_whole(answer)


def test_replaced_table_keeps_its_history_and_has_only_the_new_rows(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    old = client.append(ONE)["metadata"]
    schema = {"type": "struct", "fields": [*SCHEMA["fields"], {"id": 3, "name": "n", "type": "int", "required": False}]}
    draft = Draft({**old, "refs": {}, "schemas": [{**schema, "schema-id": 1}], "current-schema-id": 1})
    body = draft.body([draft.manifest([draft.data_file([TWO])])])
    added = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    dropped = {"action": "remove-snapshot-ref", "ref-name": "main"}
    answer = client.commit(
        {
            "requirements": [requires("assert-table-uuid", uuid=old["table-uuid"])],
            "updates": [*added, dropped, *body["updates"]],
        }
    )
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [TWO]
    assert pyiceberg_rows(answer, old["current-snapshot-id"]) == [ONE]
    assert ducklake.sql("FROM lake.ns.t").columns == ["id", "name", "n"]
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'three', 3)")
    assert pyiceberg_rows(client.load()) == [TWO, THREE]
    assert_whole(client.load())


def test_removed_snapshots_leave_history_and_the_rows_stay(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    for row in (ONE, TWO, THREE):
        metadata = client.append(row)["metadata"]
    gone = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"][:2]]
    answer = client.commit(
        {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": [*gone, 404]}]}
    )
    assert [each["snapshot-id"] for each in answer["metadata"]["snapshots"]] == [metadata["current-snapshot-id"]]
    assert [entry["snapshot-id"] for entry in answer["metadata"]["snapshot-log"]] == [metadata["current-snapshot-id"]]
    assert client.load()["metadata"] == answer["metadata"]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [ONE, TWO, THREE]
    answer = client.append((4, "four"))
    assert pyiceberg_rows(answer) == [ONE, TWO, THREE, (4, "four")]
    assert_whole(answer)


def test_snapshot_of_a_tag_stays_when_main_is_truncated(client: Client) -> None:
    client.create()
    kept = client.append(ONE)["metadata"]["current-snapshot-id"]
    tag = {"action": "set-snapshot-ref", "ref-name": "v1", "type": "tag", "snapshot-id": kept}
    client.commit({"requirements": [requires("assert-ref-snapshot-id", ref="v1", snapshot_id=None)], "updates": [tag]})
    answer = client.commit(remove(client.metadata(), *data_files(client.metadata())))
    assert answer["metadata"]["refs"]["v1"] == {"snapshot-id": kept, "type": "tag"}
    assert pyiceberg_rows(answer) == []
    assert pyiceberg_rows(answer, kept) == [ONE]


def test_properties_are_set_and_removed_and_the_servers_own_is_true(client: Client) -> None:
    client.create(properties={"a": "1", "b": "2"})
    client.append(ONE)
    answer = client.commit(
        {
            "requirements": [],
            "updates": [
                {"action": "set-properties", "updates": {"a": "3", "c": "ü 'x\" \\"}},
                {"action": "remove-properties", "removals": ["b", "c2", "ducklake.snapshot-id"]},
            ],
        }
    )
    properties = answer["metadata"]["properties"]
    newest = answer["metadata"]["snapshots"][-1]["summary"]["ducklake.snapshot-id"]
    assert properties == {
        "write.parquet.compression-codec": "zstd",
        "a": "3",
        "c": "ü 'x\" \\",
        "ducklake.snapshot-id": newest,
    }


def test_metadata_log_holds_as_many_versions_as_the_property_says(client: Client) -> None:
    client.create(properties={"write.metadata.previous-versions-max": "3"})
    locations = [client.append((number, None))["metadata-location"] for number in range(6)]
    log = client.metadata()["metadata-log"]
    assert [entry["metadata-file"] for entry in log] == locations[2:5]
    times = [entry["timestamp-ms"] for entry in log]
    assert times == sorted(times)
    assert_whole(client.load())


def test_snapshot_log_says_what_main_was_in_order(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    seen = []
    for number in range(3):
        seen.append(client.append((number, None))["metadata"]["current-snapshot-id"])
        ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({number + 10}, NULL)")
        seen.append(client.metadata()["current-snapshot-id"])
    metadata = client.metadata()
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == seen
    times = [entry["timestamp-ms"] for entry in metadata["snapshot-log"]]
    assert times == sorted(times)
    assert times[-1] <= metadata["last-updated-ms"]
    assert [snapshot["sequence-number"] for snapshot in metadata["snapshots"]] == [1, 2, 3, 4, 5, 6]


def test_servers_on_one_database_see_each_others_commits_at_once(services: Services, client: Client) -> None:
    other = Client(replace(services, cache=TableCache()))
    client.create()
    for number in range(6):
        writer, reader = (client, other) if number % 2 else (other, client)
        committed = writer.append((number, None))
        loaded = reader.load()
        assert loaded["metadata-location"] == committed["metadata-location"]
        assert loaded["metadata"] == committed["metadata"]
    assert pyiceberg_rows(client.load()) == [(number, None) for number in range(6)]


def test_dropped_and_recreated_table_is_another_one_for_every_server(services: Services, client: Client) -> None:
    other = Client(replace(services, cache=TableCache()))
    client.create()
    old = client.append(ONE)["metadata"]
    assert other.load()["metadata"] == old
    tables.drop_table(services, NS, "t", purge=False)
    with pytest.raises(NoSuchTableError):
        other.load()
    client.create()
    assert other.metadata()["table-uuid"] != old["table-uuid"]
    assert pyiceberg_rows(other.load()) == []
    with pytest.raises(CommitFailedError, match="Requirement failed"):
        other.commit(append(old, TWO))


def test_create_that_names_schema_ids_gets_fresh_ones(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    odd = {"type": "struct", "fields": [{**SCHEMA["fields"][0], "id": 100}, {**SCHEMA["fields"][1], "id": 7}]}
    metadata = client.create(schema=odd)["metadata"]
    assert [(field["id"], field["name"]) for field in metadata["schemas"][0]["fields"]] == [(1, "id"), (2, "name")]
    client.append(ONE)
    assert duckdb_rows(ducklake) == [ONE]


def test_table_in_a_namespace_that_duckdb_made_is_created_and_read(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute('CREATE SCHEMA lake."a.b"')
    request = CreateTableRequest.model_validate({"name": "t", "schema": SCHEMA})
    tables.create_table(services, ("a", "b"), request)
    assert ducklake.sql('SELECT count(*) FROM lake."a.b".t').fetchall() == [(0,)]
    with pytest.raises(AlreadyExistsError):
        create_namespace(services, ("a", "b"), {})


def superseded(client: Client, act: Callable[[], object]) -> Client:
    """A client whose next commit is overtaken: `act` happens when it asks for the time, its base already loaded."""
    acts, clock = [act], client.services.clock

    def now() -> int:
        if acts:
            acts.pop()()
        return clock()

    return Client(replace(client.services, clock=now))


def test_commit_superseded_by_another_table_goes_through(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    client.create("other")
    superseded(client, lambda: client.append(TWO, name="other")).append(ONE)
    assert duckdb_rows(ducklake) == [ONE]
    assert duckdb_rows(ducklake, "other") == [TWO]


def test_append_superseded_by_properties_is_applied_again(client: Client) -> None:
    metadata = client.create()["metadata"]
    slow = superseded(client, lambda: client.commit(set_properties(a="b")))
    answer = slow.commit(append(metadata, ONE))
    assert answer["metadata"]["properties"]["a"] == "b"
    assert pyiceberg_rows(answer) == [ONE]


def test_append_superseded_by_duckdb_rechecks_its_requirements(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    metadata = client.create()["metadata"]
    slow = superseded(client, lambda: ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'two')"))
    with pytest.raises(CommitFailedError, match="Requirement failed"):
        slow.commit(append(metadata, ONE))
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == [TWO]


def test_properties_superseded_by_duckdb_are_applied_again(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    slow = superseded(client, lambda: ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'two')"))
    answer = slow.commit(set_properties(a="b"))
    assert answer["metadata"]["properties"]["a"] == "b"
    assert pyiceberg_rows(answer) == [TWO]


def test_commit_of_more_files_than_a_statement_takes_has_them_all(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    draft = Draft(client.metadata())
    file = draft.data_file([(1, "one")])
    files = [replace(file, file_path=f"{file.file_path}-{number}.parquet") for number in range(BATCH_ROWS + 1)]
    answer = client.commit(draft.body([draft.manifest(files)]))
    assert sorted(data_files(answer["metadata"])) == sorted(file.file_path for file in files)
    found = ducklake.sql("SELECT data_file FROM ducklake_list_files('lake', 't', schema => 'ns')").fetchall()
    assert sorted(path for (path,) in found) == sorted(file.file_path for file in files)
    with services.database.reading() as cursor:
        counted = cursor.execute("SELECT count(*), count(DISTINCT data_file_id) FROM ducklake_file_column_stats")
        assert counted.fetchone() == (BATCH_ROWS + 1, BATCH_ROWS + 1)
