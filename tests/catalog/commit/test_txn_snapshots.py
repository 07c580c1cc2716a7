"""Snapshots that are a producer's batch: each is committed once, whoever sends it, beside batches of posted rows."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.inserts import PostedRows, append_rows, read_last_applied
from duckicelake.catalog.tables import commit_transaction
from duckicelake.errors import CommitFailedError, InvalidRequestError, TxnAlreadyAppliedError, TxnAlreadyCommittedError
from duckicelake.iceberg.rest import CommitTransactionRequest
from duckicelake.lake.txn import TxnId
from duckicelake.server.http.errors import HTTP_ERRORS
from tests.catalog.commit.test_append_rebase import REBASE, drafted
from tests.support.client import NS, Client, Draft, Json, pyiceberg_rows


@pytest.fixture(params=["client", "ducklake"])
def either(services: Services, client: Client, request: Any) -> Client:
    """A client of a server in either mode of snapshot ids."""
    return Client(replace(services, snapshot_ids=request.param, cache=TableCache()))


def batch(metadata: Json, version: object, *rows: tuple[int, str], app: str = "stream") -> Json:
    return drafted(metadata, *rows, **{"txn.app-id": app, "txn.version": str(version)})


def last(client: Client, app: str = "stream", table: str = "t") -> int | None:
    found = read_last_applied(client.services, NS, table, app)
    return None if found is None else found.version


def test_batch_is_committed_once_and_none_before_it_but_other_producers_are(either: Client) -> None:
    either.create()
    for version in (0, 5):
        either.commit(batch(either.metadata(), version, (version, "new")))
    for version in (5, 4, 0):
        with pytest.raises(
            TxnAlreadyCommittedError, match=rf"Version {version} of stream was already applied \(latest: 5\)"
        ):
            either.commit(batch(either.metadata(), version, (9, "again")))
    answer = either.commit(batch(either.metadata(), 0, (7, "other"), app="other"))
    assert pyiceberg_rows(answer) == [(0, "new"), (5, "new"), (7, "other")]
    assert (last(either), last(either, "other"), last(either, "nobody")) == (5, 0, None)


def test_refusal_is_one_that_iceberg_clients_neither_retry_nor_look_up() -> None:
    assert (HTTP_ERRORS[TxnAlreadyCommittedError].status, HTTP_ERRORS[TxnAlreadyCommittedError].type) == (
        422,
        "AlreadyAppliedException",
    )


def test_posted_rows_and_snapshots_count_together(client: Client) -> None:
    client.create()

    def post(sequence: int) -> None:
        body = json.dumps([{"id": sequence, "name": "posted"}]).encode()
        append_rows(client.services, PostedRows(NS, "t", body, "application/json", txn=TxnId("stream", sequence)))

    post(1)
    client.commit(batch(client.metadata(), 2, (2, "committed")))
    with pytest.raises(TxnAlreadyAppliedError):
        post(2)
    stale = batch(client.metadata(), 3, (3, "late"))
    post(3)
    with pytest.raises(CommitFailedError):
        client.commit(stale)
    with pytest.raises(TxnAlreadyCommittedError):
        client.commit(batch(client.metadata(), 3, (3, "late")))
    assert pyiceberg_rows(client.load()) == [(1, "posted"), (2, "committed"), (3, "posted")]


def test_batch_may_be_several_snapshots_of_one_request(client: Client) -> None:
    client.create()
    first = batch(client.metadata(), 1, (1, "one"))
    draft = Draft(client.metadata(), built_on=first["updates"][0]["snapshot"]["snapshot-id"])
    keys = {"operation": "append", "total-records": "2", "txn.app-id": "stream", "txn.version": "1"}
    second = draft.body([draft.manifest([draft.data_file([(2, "two")])])], summary=keys, sequence_number=2)
    both = {"requirements": first["requirements"], "updates": [*first["updates"], *second["updates"]]}
    client.commit(both)
    assert last(client) == 1
    with pytest.raises(TxnAlreadyCommittedError):
        client.commit(batch(client.metadata(), 1, (3, "again")))


@pytest.mark.parametrize("properties", [{}, REBASE], ids=["conflicting", "put on top of each other"])
def test_of_many_that_commit_one_batch_at_the_same_time_one_does(client: Client, properties: dict[str, str]) -> None:
    client.create(properties=properties)
    together = Barrier(8)

    def attempt(number: int) -> bool:
        body = batch(client.metadata(), 1, (number, "x"))
        together.wait()
        while True:
            try:
                client.commit(body)
            except CommitFailedError:
                body = batch(client.metadata(), 1, (number, "x"))
            except TxnAlreadyCommittedError:
                return False
            else:
                return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [False] * 7 + [True]
    assert len(pyiceberg_rows(client.load())) == 1


def test_transaction_with_a_batch_that_is_there_changes_no_table(client: Client) -> None:
    for name in ("t", "u"):
        client.create(name)
    client.commit(batch(client.metadata(), 1, (1, "one")))

    def both(version: int) -> CommitTransactionRequest:
        changes = [
            {**batch(client.metadata(name), version, (9, name)), "identifier": {"namespace": list(NS), "name": name}}
            for name in ("u", "t")
        ]
        return CommitTransactionRequest.model_validate({"table-changes": changes})

    with pytest.raises(TxnAlreadyCommittedError):
        commit_transaction(client.services, both(1))
    assert (last(client), last(client, table="u")) == (1, None)
    commit_transaction(client.services, both(2))
    assert (last(client), last(client, table="u")) == (2, 2)


def test_streams_into_a_delta_log_go_on_where_its_snapshots_say(client: Client) -> None:
    client.create()
    client.commit(drafted(client.metadata(), (1, "one"), **{"delta.txn.a:b": "41", "delta.txn.other": "x"}))
    assert (last(client, "a:b"), last(client, "other")) == (41, None)
    with pytest.raises(TxnAlreadyCommittedError):
        client.commit(batch(client.metadata(), 41, (2, "two"), app="a:b"))
    client.commit(batch(client.metadata(), 42, (2, "two"), app="a:b"))


@pytest.mark.parametrize("version", ["", "-1", "one", "9" * 30])
def test_version_that_is_no_number_is_refused_as_is_one_of_no_one(client: Client, version: str) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match="whole number"):
        client.commit(batch(client.metadata(), version, (1, "one")))
    with pytest.raises(InvalidRequestError, match="letters"):
        client.commit(batch(client.metadata(), 1, (1, "one"), app=""))
