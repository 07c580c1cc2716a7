"""Tables whose appends are put on top of what main has become, instead of a conflict."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Barrier
from typing import Any, cast
from uuid import uuid4

import duckdb
import psycopg
import pytest

from duckicelake.catalog.commit import append as appends
from duckicelake.catalog.commit import run, uploads
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.combiner import CombiningQueues
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.meter import NO_METER, Meter, Retry
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.tables import commit_transaction
from duckicelake.errors import CommitFailedError, CommitStateUnknownError, InvalidRequestError
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.iceberg.rest import CommitTableRequest, CommitTransactionRequest
from tests.support.client import (
    NS,
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
    set_properties,
    set_ref,
)
from tests.support.seams import Distant, fresh
from tests.support.waits import counted_waits, wait_until

REBASE = {"ducklake.append-rebase": "true"}
FAR = "branch main has changed"


@pytest.fixture(params=["2", "3"])
def version(request: Any) -> str:
    return cast("str", request.param)


@pytest.fixture(params=["client", "ducklake"])
def renumbering(services: Services, client: Client, request: Any) -> Client:
    """A client of a server in either mode of snapshot ids."""
    return Client(replace(services, snapshot_ids=request.param, cache=TableCache()))


def drafted(metadata: Json, *rows: Any, **summary: str) -> Json:
    """An append as engines send it, with totals that are right on the metadata it is for."""
    draft = Draft(metadata, format_version=metadata["format-version"])
    current = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}.get(draft.head)
    before = int(current["summary"]["total-records"]) if current else 0
    counts = {"added-records": str(len(rows)), "total-records": str(before + len(rows))}
    manifests = [draft.manifest([draft.data_file(rows)]), *draft.parent_manifests]
    return draft.body(manifests, summary={"operation": "append", **counts, **summary})


def report(snapshot: Json, *, numbers: bool) -> Json:
    """What a snapshot says but for its name and time, and for its number where that is DuckLake's."""
    names = ["first-row-id", "added-rows", "schema-id", *(["sequence-number"] if numbers else [])]
    summary = {key: value for key, value in snapshot["summary"].items() if key != "ducklake.snapshot-id"}
    return {"summary": summary, **{name: snapshot.get(name) for name in names}}


def test_append_on_a_base_that_has_moved_is_what_the_clients_own_retry_makes(
    renumbering: Client, version: str, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client = renumbering
    properties = {**REBASE, "format-version": version}
    old = client.create("t", properties=properties)["metadata"]
    client.create("retried", properties=properties)
    for rows in [[(1, "one"), (2, "two")], [(3, "three")]]:
        client.commit(drafted(client.metadata("t"), *rows), "t")
        client.commit(drafted(client.metadata("retried"), *rows), "retried")
    first = client.metadata("t")
    client.commit(drafted(old, (4, "four"), (5, "five")), "t")
    answer = client.commit(drafted(first, (6, "six")), "t")
    client.commit(drafted(client.metadata("retried"), (4, "four"), (5, "five")), "retried")
    retried = client.commit(drafted(client.metadata("retried"), (6, "six")), "retried")

    rows = [(1, "one"), (2, "two"), (3, "three"), (4, "four"), (5, "five"), (6, "six")]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == rows
    assert_whole(answer)
    snapshots = answer["metadata"]["snapshots"]
    assert [each.get("parent-snapshot-id") for each in snapshots] == [
        None,
        *(each["snapshot-id"] for each in snapshots[:-1]),
    ]
    own_numbers = version == "2" and client.services.snapshot_ids == "client"
    assert [report(each, numbers=own_numbers) for each in snapshots] == [
        report(each, numbers=own_numbers) for each in retried["metadata"]["snapshots"]
    ]
    row_ids = "SELECT rowid, id FROM lake.ns.{} ORDER BY id"
    assert ducklake.sql(row_ids.format("t")).fetchall() == ducklake.sql(row_ids.format("retried")).fetchall()


def test_append_to_a_table_that_does_not_say_so_is_a_conflict(client: Client) -> None:
    old = client.create()["metadata"]
    client.append((1, "one"))
    with pytest.raises(CommitFailedError, match="was created concurrently"):
        client.commit(append(old, (2, "two")))
    assert pyiceberg_rows(client.load()) == [(1, "one")]


@pytest.mark.parametrize("kind", ["remove", "delete", "false append"])
def test_what_does_more_than_append_is_a_conflict(client: Client, kind: str) -> None:
    client.create(properties=REBASE)
    old = client.append((1, "one"))["metadata"]
    client.append((2, "two"))
    body = delete(old, (data_files(old)[0], 0)) if kind == "delete" else remove(old, *data_files(old))
    if kind == "false append":
        body["updates"][0]["snapshot"]["summary"]["operation"] = "append"
    with pytest.raises(CommitFailedError, match=FAR):
        client.commit(body)
    assert pyiceberg_rows(client.load()) == [(1, "one"), (2, "two")]


def test_append_with_another_change_in_its_request_is_a_conflict(client: Client) -> None:
    old = client.create(properties=REBASE)["metadata"]
    client.append((1, "one"))
    body = append(old, (2, "two"))
    body["updates"].append({"action": "set-properties", "updates": {"a": "b"}})
    with pytest.raises(CommitFailedError, match="was created concurrently"):
        client.commit(body)


def test_append_on_a_snapshot_that_has_left_history_is_a_conflict(client: Client) -> None:
    client.create(properties=REBASE)
    old = client.append((1, "one"))["metadata"]
    client.append((2, "two"))
    expired = {"action": "remove-snapshots", "snapshot-ids": [old["current-snapshot-id"]]}
    client.commit({"requirements": [], "updates": [expired]})
    with pytest.raises(CommitFailedError, match=FAR):
        client.commit(append(old, (3, "three")))


def test_append_to_a_branch_that_has_moved_is_a_conflict(client: Client) -> None:
    client.create(properties=REBASE)
    old = client.append((1, "one"))["metadata"]
    for name in ("first", "second"):
        draft = Draft(old, branch="b", built_on=old["current-snapshot-id"])
        body = draft.body([draft.manifest([draft.data_file([(2, name)])]), *draft.parent_manifests])
        if name == "first":
            client.commit(body)
        else:
            with pytest.raises(CommitFailedError, match="branch b was created concurrently"):
                client.commit(body)


@pytest.mark.parametrize("required", [False, True])
def test_append_of_an_older_schema_needs_all_columns_that_rows_must_have(client: Client, *, required: bool) -> None:
    old = client.create(properties=REBASE)["metadata"]
    fields = [*old["schemas"][0]["fields"], {"id": 3, "name": "c", "type": "int", "required": required}]
    schema = {"type": "struct", "schema-id": 1, "fields": fields}
    change = [{"action": "add-schema", "schema": schema}, {"action": "set-current-schema", "schema-id": -1}]
    client.commit({"requirements": [], "updates": change})
    draft = Draft(client.metadata())
    client.commit(draft.body([]))
    late = append(old, (1, "one"))
    if required:
        with pytest.raises(CommitFailedError, match="was created concurrently"):
            client.commit(late)
    else:
        assert client.commit(late)["metadata"]["snapshots"][-1]["schema-id"] == 0


LIMITS = {"min_snapshots_to_keep": 3, "max_snapshot_age_ms": 1000}


def limited(body: Json, **limits: int) -> Json:
    """The append as Java sends it, which says main's limits again."""
    added, moved = body["updates"]
    return {**body, "updates": [added, set_ref("main", moved["snapshot-id"], **limits)]}


def test_append_that_says_the_limits_that_main_has_is_put_on_top(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties=REBASE)
    client.commit(limited(drafted(client.metadata(), (1, "one")), **LIMITS))
    old = client.metadata()
    bodies = [limited(drafted(old, (number, None)), **LIMITS) for number in range(2, 6)]
    answers = [*at_once(bodies[:3], [client]), client.commit(bodies[3])]
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    refs = client.metadata()["refs"]["main"]
    assert (refs["min-snapshots-to-keep"], refs["max-snapshot-age-ms"]) == (3, 1000)
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == [(1, "one"), *((n, None) for n in range(2, 6))]


def test_append_that_says_other_limits_than_main_has_is_a_conflict(client: Client) -> None:
    old = client.create(properties=REBASE)["metadata"]
    client.commit(limited(drafted(old, (1, "one")), **LIMITS))
    with pytest.raises(CommitFailedError, match="was created concurrently"):
        client.commit(limited(drafted(old, (2, "two")), min_snapshots_to_keep=4))
    assert pyiceberg_rows(client.load()) == [(1, "one")]


def test_append_in_a_transaction_over_several_tables_is_put_on_top(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    olds = {name: client.create(name, properties=REBASE)["metadata"] for name in ("a", "b")}
    for name in olds:
        client.append((1, name), name=name)
    changes = [
        {**append(old, (2, name)), "identifier": {"namespace": list(NS), "name": name}} for name, old in olds.items()
    ]
    commit_transaction(client.services, CommitTransactionRequest.model_validate({"table-changes": changes}))
    for name in olds:
        assert pyiceberg_rows(client.load(name)) == duckdb_rows(ducklake, name) == [(1, name), (2, name)]


def test_property_that_is_neither_true_nor_false_is_refused(client: Client) -> None:
    with pytest.raises(InvalidRequestError, match="write true or false"):
        client.create(properties={"ducklake.append-rebase": "yes"})
    client.create()
    with pytest.raises(InvalidRequestError, match="write true or false"):
        client.commit(set_properties(**{"ducklake.append-rebase": "1"}))


def at_once(bodies: list[Json], clients: list[Client]) -> list[Json | Exception]:
    """What became of commits that were sent at the same time."""
    start = Barrier(len(bodies))

    def send(number: int) -> Json | Exception:
        start.wait()
        try:
            return clients[number % len(clients)].commit(bodies[number])
        except Exception as error:  # noqa: BLE001
            return error

    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(send, range(len(bodies))))


def test_appends_of_many_at_once_through_two_servers_all_succeed(
    client: Client, version: str, ducklake: duckdb.DuckDBPyConnection
) -> None:
    metadata = client.create(properties={**REBASE, "format-version": version})["metadata"]
    other = Client(replace(client.services, cache=TableCache(), commits=CommitQueue()))
    bodies = [drafted(metadata, (number, None)) for number in range(12)]
    answers = at_once(bodies, [client, other])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    for body, answer in zip(bodies, answers, strict=True):
        listed = {each["snapshot-id"] for each in cast("Json", answer)["metadata"]["snapshots"]}
        assert body["updates"][0]["snapshot"]["snapshot-id"] in listed
    answer = client.load()
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [(number, None) for number in range(12)]
    assert [int(each["summary"]["total-records"]) for each in answer["metadata"]["snapshots"]] == list(range(1, 13))
    log = [each["snapshot-id"] for each in answer["metadata"]["snapshot-log"]]
    assert log == [each["snapshot-id"] for each in answer["metadata"]["snapshots"]]
    assert_whole(answer)
    if version == "3":
        assert len(ducklake.sql("SELECT DISTINCT rowid FROM lake.ns.t").fetchall()) == 12


@dataclass
class Listener:
    """A meter that remembers what was done again, and why."""

    again: list[Retry] = field(default_factory=list)

    def count_retry(self, reason: Retry) -> None:
        self.again.append(reason)

    def __getattr__(self, name: str) -> Any:
        return getattr(NO_METER, name)


def test_appends_of_many_at_once_to_a_table_not_known_yet_are_not_in_each_others_way(client: Client) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    listener = Listener()
    other = Client(replace(fresh(client.services), meter=cast("Meter", listener)))
    answers = at_once([drafted(metadata, (number, None)) for number in range(8)], [other])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert "stale_base" not in listener.again


def test_what_clients_uploaded_is_read_before_their_turn_and_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    bodies = [drafted(metadata, (number, None)) for number in range(8)]
    store = Distant(client.services.store)
    settle = appends._settle

    def settled(batch: Any) -> None:
        wait_until(lambda: len(store.reads) == 2 * len(bodies))  # a list and a manifest of each
        settle(batch)

    monkeypatch.setattr(appends, "_settle", settled)
    answers = at_once(bodies, [Client(replace(client.services, store=store))])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    lists = {body["updates"][0]["snapshot"]["manifest-list"] for body in bodies}
    assert {path: store.reads[path] for path in lists} == dict.fromkeys(lists, 1)
    assert sum(store.reads.values()) == 2 * len(bodies)


def test_append_after_another_servers_waits_for_postgres_a_few_times(client: Client) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    other = Client(fresh(client.services))
    for number in range(6):
        client.commit(drafted(metadata, (number, None)))
        body = drafted(metadata, (100 + number, None))
        with counted_waits() as waits:
            other.commit(body)
    assert 0 < len(waits) <= 20
    assert len(pyiceberg_rows(client.load())) == 12


def test_large_uploads_and_those_that_are_not_there_wait_for_their_turn(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    bodies = [drafted(metadata, (number, None)) for number in range(2)]
    snapshots = [CommitTableRequest.model_validate(body).updates[0].snapshot for body in bodies]  # type: ignore[union-attr]
    lost = snapshots[0].replace_fields(manifest_list=f"{snapshots[0].manifest_list}.missing")

    def ahead(*appended: Any) -> tuple[int, int]:
        read = uploads.read_ahead(client.services, metadata["location"], appended)
        return len(read.lists), len(read.manifests)

    assert ahead(snapshots[0]) == (1, 1)
    assert ahead(lost) == (0, 0)
    assert ahead(*snapshots) == (0, 0)  # of a request that brings many they could be many times as much
    (line,) = read_manifest_list(client.services.store.read(str(snapshots[0].manifest_list)))
    for lengths, read in (((1, 1), 1), ((uploads.AHEAD_BYTES + 1,), 0), ((1 << 30, 1 - (1 << 30)), 0)):
        lines = tuple(replace(line, manifest_length=length) for length in lengths)
        with monkeypatch.context() as patched:
            patched.setattr(uploads, "read_list", lambda *_, lines=lines: lines)
            patched.setattr(uploads, "read_manifest_at", lambda *_: None)
            assert ahead(snapshots[0]) == (1, read)
    monkeypatch.setattr(uploads, "AHEAD_BYTES", 1000)
    assert ahead(snapshots[0]) == (0, 0)
    answers = at_once(bodies, [client])
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert pyiceberg_rows(client.load()) == [(0, None), (1, None)]


def test_one_of_many_that_is_wrong_fails_alone_and_each_has_its_own_entry_and_key(client: Client) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    bodies = [drafted(metadata, (number, None)) for number in range(8)]
    bodies[3]["updates"][0]["snapshot"]["manifest-list"] += ".missing"
    keys = [uuid4() for _ in bodies]
    clients = [Client(replace(client.services, once=Once(key, b"it"))) for key in keys]
    answers = at_once(bodies, clients)
    failed = [number for number, answer in enumerate(answers) if isinstance(answer, Exception)]
    assert failed == [3]
    assert isinstance(answers[3], InvalidRequestError)
    with client.services.database.reading() as cursor:
        entries = cursor.execute(
            "SELECT snapshot_id FROM duckicelake_audit WHERE resource = 'ns.t' AND snapshot_id IS NOT NULL "
            "AND detail::text LIKE '%add-snapshot%' ORDER BY 1"
        ).fetchall()
        settled = cursor.execute("SELECT count(*) FROM duckicelake_idempotency WHERE error IS NULL").fetchall()
    made = sorted(int(each["summary"]["ducklake.snapshot-id"]) for each in client.metadata()["snapshots"])
    assert [row[0] for row in entries] == made
    assert settled == [(7,)]
    again = clients[0].commit(bodies[0])
    assert json.dumps(again["metadata"]["snapshots"]) == json.dumps(client.metadata()["snapshots"])
    assert len(again["metadata"]["snapshots"]) == 7


@pytest.mark.parametrize("version", [2, 3])
def test_append_that_arrives_twice_is_a_conflict_and_there_once(client: Client, version: int) -> None:
    """Not a bad request, after which engines delete the files of the commit."""
    properties = {**REBASE, "format-version": str(version)}
    body = drafted(client.create(properties=properties)["metadata"], (1, "one"))
    client.commit(body)
    client.commit(drafted(client.metadata(), (2, "two")))
    with pytest.raises(
        CommitFailedError, match="was created concurrently" if version == 2 else "Snapshot already exists"
    ):
        client.commit(body)
    twice = drafted(client.metadata(), (3, "three"))
    answers = at_once([twice, twice, twice], [client])
    assert sorted(type(answer).__name__ for answer in answers) == ["CommitFailedError", "CommitFailedError", "dict"]
    assert pyiceberg_rows(client.load()) == [(1, "one"), (2, "two"), (3, "three")]


@pytest.mark.parametrize("way", ["to the empty table", "to a tag", "compacted", "with another"])
def test_append_that_arrives_again_after_its_snapshot_has_left_history_is_there_once(
    client: Client, ducklake: duckdb.DuckDBPyConnection, way: str
) -> None:
    properties = {**REBASE, "ducklake.max-listed-snapshots": "2", "ducklake.history.hold": "0 hours"}
    metadata = client.create(properties=properties)["metadata"]
    rows = [(1, "one")]
    if way == "to a tag":
        metadata = client.commit(drafted(client.metadata(), (0, None)))["metadata"]
        rows = [(0, None), *rows]
        client.commit({"requirements": [], "updates": [set_ref("kept", metadata["current-snapshot-id"], "tag")]})
    late = drafted(metadata, (1, "one"))
    client.commit(late)
    for number in range(2, 6):
        client.commit(drafted(client.metadata(), (number, None)))
        rows.append((number, None))
    if way == "compacted":
        ducklake.execute("CALL ducklake_merge_adjacent_files('lake')")
        assert client.load()
    sent = [late, drafted(client.metadata(), (6, None))] if way == "with another" else [late]
    refused = [answer for answer in at_once(sent, [client]) if isinstance(answer, Exception)]
    assert [type(each) for each in refused] == [CommitFailedError]
    rows += [(6, None)] if way == "with another" else []
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == rows


def test_append_to_what_has_left_main_needs_all_of_main_to_be_listed(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """All of main is listed here, so that an append that isn't there was never put on it."""
    client.create(properties=REBASE)
    first = client.commit(drafted(client.metadata(), (1, "one")))["metadata"]["current-snapshot-id"]
    old = client.commit(drafted(client.metadata(), (2, "two")))["metadata"]
    client.commit({"requirements": [], "updates": [set_ref("main", first)]})
    client.commit(drafted(old, (3, "three")))
    assert pyiceberg_rows(client.load()) == duckdb_rows(ducklake) == [(1, "one"), (3, "three")]


def test_appends_that_are_committed_but_cannot_be_shown_are_not_committed_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    bodies = [drafted(metadata, (number, None)) for number in range(3)]

    def fail(*_: object) -> None:
        raise psycopg.errors.DeadlockDetected("while it is shown")

    with monkeypatch.context() as patched:
        patched.setattr("duckicelake.catalog.commit.run.follow", fail)
        answers = at_once(bodies, [client])
    assert {type(answer) for answer in answers} == {CommitStateUnknownError}
    assert pyiceberg_rows(client.load()) == [(number, None) for number in range(3)]


def test_commit_whose_base_is_let_go_of_while_it_is_computed_is_computed_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an error of the server: the manifests that it would read have gone."""
    client.create(properties={**REBASE, "ducklake.max-listed-snapshots": "1"})
    for number in range(2):
        client.append((number, None))
    other = Client(replace(client.services, cache=TableCache(), commits=CommitQueue()))
    late_client = Client(replace(client.services, cache=TableCache(), appends=CombiningQueues(keepers=0)))
    late = append(client.metadata(), (9, None))
    loaded = run._load

    def load(*arguments: Any) -> Any:
        monkeypatch.setattr(run, "_load", loaded)
        before = loaded(*arguments)
        other.commit(remove(other.metadata(), data_files(other.metadata())[0]))
        for number in range(4):
            other.append((10 + number, None))
        return before

    monkeypatch.setattr(run, "_load", load)
    with pytest.raises(CommitFailedError, match=FAR):
        late_client.commit(late)
    assert [row[0] for row in pyiceberg_rows(client.load())] == [1, 10, 11, 12, 13]
