"""Who numbers snapshots (design D3): the modes `client` and `ducklake`."""

from dataclasses import replace

import duckdb
import orjson
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitFailedError
from tests.support.client import (
    Client,
    Draft,
    Json,
    append,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    pyiceberg_rows,
    remove,
)
from tests.support.seams import fresh

ONE, TWO, THREE = (1, "one"), (2, "two"), (3, "three")


@pytest.fixture
def numbered(services: Services, client: Client) -> Client:
    """A client of a server in mode `ducklake`."""
    return Client(replace(fresh(services), snapshot_ids="ducklake"))


def numbers(services: Services) -> list[tuple[int, str | None]]:
    with services.database.reading() as cursor:
        rows = cursor.execute("SELECT snapshot_id, commit_extra_info FROM ducklake_snapshot_changes ORDER BY 1")
        return rows.fetchall()


def assert_one_number(services: Services, answer: Json) -> None:
    """The identity check of D3: each snapshot and the DuckLake snapshot that made it name one another."""
    metadata, known = answer["metadata"], dict(numbers(services))
    for snapshot in metadata["snapshots"]:
        ducklake_id = int(snapshot["summary"]["ducklake.snapshot-id"])
        extra = known[ducklake_id]
        if extra is not None:
            assert snapshot["snapshot-id"] in orjson.loads(extra)["iceberg"].values()
    current = metadata["snapshots"][-1]["summary"]["ducklake.snapshot-id"]
    assert metadata["properties"]["ducklake.snapshot-id"] == current


def test_ids_and_sequence_numbers_equal_ducklakes(
    services: Services, numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    numbered.create()
    numbered.append(ONE)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'two')")
    answer = numbered.append(THREE)
    for snapshot in answer["metadata"]["snapshots"]:
        expected = int(snapshot["summary"]["ducklake.snapshot-id"])
        assert (snapshot["snapshot-id"], snapshot["sequence-number"]) == (expected, expected)
    newest, _ = numbers(services)[-1]
    assert answer["metadata"]["current-snapshot-id"] == newest == answer["metadata"]["last-sequence-number"]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [ONE, TWO, THREE]
    assert_one_number(services, answer)
    assert_whole(answer)


def test_proposed_ids_are_aliases_in_later_requests(services: Services, numbered: Client) -> None:
    metadata = numbered.create()["metadata"]
    body = append(metadata, ONE)
    proposed = body["updates"][0]["snapshot"]["snapshot-id"]
    answer = numbered.commit(body)
    given = answer["metadata"]["current-snapshot-id"]
    assert given != proposed
    tag = {"action": "set-snapshot-ref", "ref-name": "v1", "type": "tag", "snapshot-id": proposed}
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": proposed}
    other = Client(replace(numbered.services, cache=fresh(services).cache))
    tagged = other.commit({"requirements": [requirement], "updates": [tag]})
    assert tagged["metadata"]["refs"]["v1"]["snapshot-id"] == given
    late = append(
        {
            **answer["metadata"],
            "current-snapshot-id": proposed,
            "refs": {"main": {"snapshot-id": proposed, "type": "branch"}},
            "snapshots": [{**answer["metadata"]["snapshots"][0], "snapshot-id": proposed}],
        },
        TWO,
    )
    assert pyiceberg_rows(other.commit(late)) == [ONE, TWO]


def test_snapshots_of_one_request_refer_to_each_other_by_proposed_ids(
    services: Services, numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    numbered.create()
    base = numbered.append(ONE)["metadata"]
    first = remove(base, *data_files(base))
    snapshot = first["updates"][0]["snapshot"]
    between = {
        **base,
        "current-snapshot-id": snapshot["snapshot-id"],
        "refs": {"main": {"snapshot-id": snapshot["snapshot-id"], "type": "branch"}},
        "snapshots": [*base["snapshots"], snapshot],
        "last-sequence-number": snapshot["sequence-number"],
    }
    second = append(between, TWO)
    answer = numbered.commit({**first, "updates": [*first["updates"], *second["updates"]]})
    *_, old, new = answer["metadata"]["snapshots"]
    assert new["parent-snapshot-id"] == old["snapshot-id"] == new["snapshot-id"] - 1
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [TWO]
    assert_one_number(services, answer)
    assert_whole(answer)


def test_snapshot_id_that_duckdb_took_meanwhile_is_given_anew(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    numbered.create()
    ducklake.execute("CREATE TABLE lake.ns.other (i INTEGER)")
    acts, clock = ["INSERT INTO lake.ns.other VALUES (1)"], numbered.services.clock

    def now() -> int:
        if acts:
            ducklake.execute(acts.pop())
        return clock()

    slow = Client(replace(numbered.services, clock=now))
    snapshot = slow.append(ONE)["metadata"]["snapshots"][0]
    assert str(snapshot["snapshot-id"]) == snapshot["summary"]["ducklake.snapshot-id"]
    assert ducklake.sql("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall() == [(snapshot["snapshot-id"],)]


def test_deletes_and_staged_creation_are_numbered_too(numbered: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    staged = numbered.create(stage_create=True)["metadata"]
    body = append(staged, ONE, TWO)
    created = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    answer = numbered.commit({"requirements": [{"type": "assert-create"}], "updates": [*created, *body["updates"]]})
    assert answer["metadata"]["current-snapshot-id"] < 100
    metadata = answer["metadata"]
    answer = numbered.commit(delete(metadata, (data_files(metadata)[0], 0)))
    assert answer["metadata"]["current-snapshot-id"] < 100
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [TWO]
    assert_whole(answer)


def test_repeated_proposed_id_is_refused(numbered: Client) -> None:
    metadata = numbered.create()["metadata"]
    body = append(metadata, ONE)
    numbered.commit(body)
    draft = Draft(numbered.metadata(), snapshot_id=body["updates"][0]["snapshot"]["snapshot-id"])
    again = draft.body([draft.manifest([draft.data_file([TWO])]), *draft.parent_manifests])
    with pytest.raises(CommitFailedError, match="already exists"):
        numbered.commit(again)
    assert pyiceberg_rows(numbered.load()) == [ONE]


def test_mode_client_keeps_ids_and_counts_sequence_numbers(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    metadata = client.create()["metadata"]
    body = append(metadata, ONE)
    proposed = body["updates"][0]["snapshot"]["snapshot-id"]
    client.commit(body)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (2, 'two')")
    answer = client.load()
    first, second = answer["metadata"]["snapshots"]
    assert (first["snapshot-id"], first["sequence-number"]) == (proposed, 1)
    assert second["summary"]["ducklake.snapshot-id"] == str(second["snapshot-id"])
    assert second["sequence-number"] == 2
    assert_one_number(services, answer)


def test_lake_that_changes_its_mode_goes_on(
    services: Services, client: Client, numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append(ONE)
    numbered.append(TWO)
    answer = client.append(THREE)
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [ONE, TWO, THREE]
    sequence = [snapshot["sequence-number"] for snapshot in answer["metadata"]["snapshots"]]
    assert sequence == sorted(set(sequence))
    assert_one_number(services, answer)
    assert_whole(answer)


def test_old_version_that_ducklake_names_reads_as_iceberg_did(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    numbered.create()
    for row in (ONE, TWO, THREE):
        numbered.append(row)
    answer = numbered.load()
    for snapshot in answer["metadata"]["snapshots"]:
        at = f"SELECT id, name FROM lake.ns.t AT (VERSION => {snapshot['snapshot-id']}) ORDER BY id"
        assert ducklake.sql(at).fetchall() == pyiceberg_rows(answer, snapshot["snapshot-id"])
