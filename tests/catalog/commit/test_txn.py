"""Txns are applied once: a run's epoch is refused a second time, whoever sends it and however late."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from psycopg import Cursor

from duckicelake.catalog.commit.rules import find_run
from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, append_rows
from duckicelake.errors import CommitFailedError, InvalidRequestError, TxnAlreadyAppliedError, TxnAlreadyCommittedError
from duckicelake.lake.setup.migrations import apply_migrations, load_migrations
from duckicelake.lake.txn import TxnId
from tests.catalog.commit.test_append_rebase import REBASE, at_once, drafted
from tests.support.client import NS, Client, Draft, Json, append, pyiceberg_rows


def stamped(metadata: Json, epoch: object, *rows: tuple[int, str], run: str = "r") -> Json:
    run_keys = {"duckicelake.run-id": run, "duckicelake.run-epoch": str(epoch)}
    return drafted(metadata, *rows, **run_keys)


def test_epoch_is_committed_once_and_none_before_it_but_other_runs_are(client: Client) -> None:
    client.create()
    for epoch in (0, 3):
        client.commit(stamped(client.metadata(), epoch, (epoch, "new")))
    for epoch in (3, 2, 0):
        with pytest.raises(
            TxnAlreadyCommittedError, match=rf"Epoch {epoch} of run r was already applied \(latest: 3\)"
        ):
            client.commit(stamped(client.metadata(), epoch, (9, "again")))
    answer = client.commit(stamped(client.metadata(), 0, (7, "other"), run="other"))
    assert pyiceberg_rows(answer) == [(0, "new"), (3, "new"), (7, "other")]
    found = find_run(client.services, NS, "t", "r")
    assert found is not None
    assert (found.epoch, found.snapshot_id) == (3, answer["metadata"]["snapshots"][1]["snapshot-id"])
    assert found.summary["added-records"] == "1"


def test_run_is_known_after_its_snapshot_has_expired_and_is_of_one_table(client: Client) -> None:
    client.create()
    first = client.commit(stamped(client.metadata(), 0, (1, "one")))["metadata"]["current-snapshot-id"]
    client.commit(drafted(client.metadata(), (2, "two")))
    expired = [{"action": "remove-snapshots", "snapshot-ids": [first]}]
    assert len(client.commit({"requirements": [], "updates": expired})["metadata"]["snapshots"]) == 1
    with pytest.raises(TxnAlreadyCommittedError, match="already applied"):
        client.commit(stamped(client.metadata(), 0, (1, "again")))
    assert find_run(client.services, NS, "other", "r") is None


@pytest.mark.parametrize("properties", [{}, REBASE], ids=["conflicting", "put on top of each other"])
def test_of_many_that_commit_one_run_at_the_same_time_one_does(client: Client, properties: dict[str, str]) -> None:
    client.create(properties=properties)
    together = Barrier(8)

    def attempt(number: int) -> bool:
        body = stamped(client.metadata(), 0, (number, "x"))
        together.wait()
        while True:
            try:
                client.commit(body)
            except CommitFailedError:
                body = stamped(client.metadata(), 0, (number, "x"))
            except TxnAlreadyCommittedError:
                return False
            else:
                return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [False] * 7 + [True]
    assert len(pyiceberg_rows(client.load())) == 1


def test_one_of_many_appends_whose_txn_is_malformed_fails_alone(client: Client) -> None:
    metadata = client.create(properties=REBASE)["metadata"]
    bodies = [stamped(metadata, 0, (number, "x"), run=f"r{number}") for number in range(8)]
    bodies[3]["updates"][0]["snapshot"]["summary"].update({"txn.app-id": "a", "txn.version": "x"})
    answers = at_once(bodies, [client])
    assert [number for number, answer in enumerate(answers) if isinstance(answer, Exception)] == [3]
    assert isinstance(answers[3], InvalidRequestError)
    assert [id_ for id_, _ in pyiceberg_rows(client.load())] == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.parametrize("epoch", ["", "-1", "one", "9" * 30])
def test_epoch_that_is_no_number_is_refused(client: Client, epoch: str) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match="whole number"):
        client.commit(stamped(client.metadata(), epoch, (1, "one")))
    body = append(client.metadata(), (1, "one"))
    body["updates"][0]["snapshot"]["summary"]["duckicelake.run-epoch"] = "1"
    with pytest.raises(InvalidRequestError, match="beside"):
        client.commit(body)


def test_overwrite_of_several_snapshots_is_one_epoch(client: Client) -> None:
    client.create()
    first = stamped(client.metadata(), 1, (1, "one"))
    draft = Draft(client.metadata(), built_on=first["updates"][0]["snapshot"]["snapshot-id"])
    keys = {"operation": "append", "total-records": "2", "duckicelake.run-id": "r", "duckicelake.run-epoch": "1"}
    second = draft.body([draft.manifest([draft.data_file([(2, "two")])])], summary=keys, sequence_number=2)
    client.commit({"requirements": first["requirements"], "updates": [*first["updates"], *second["updates"]]})
    found = find_run(client.services, NS, "t", "r")
    assert found is not None
    assert (found.epoch, found.snapshot_id) == (1, client.metadata()["snapshots"][0]["snapshot-id"])


def test_run_and_producer_of_one_name_are_two_apps(client: Client) -> None:
    client.create()
    client.commit(stamped(client.metadata(), 5, (1, "run"), run="nightly"))
    assert post(client, 2, TxnId("nightly", 3)).rows == 1
    both = {"txn.app-id": "nightly", "txn.version": "4", "duckicelake.run-id": "nightly", "duckicelake.run-epoch": "6"}
    client.commit(drafted(client.metadata(), (3, "both"), **both))
    with pytest.raises(TxnAlreadyCommittedError, match=r"Version 4 of nightly .* \(latest: 4\)"):
        client.commit(drafted(client.metadata(), (4, "again"), **(both | {"duckicelake.run-epoch": "7"})))
    with pytest.raises(TxnAlreadyCommittedError, match=r"Epoch 6 of run nightly .* \(latest: 6\)"):
        client.commit(drafted(client.metadata(), (4, "again"), **(both | {"txn.version": "5"})))


def test_summary_of_a_run_may_have_any_character(client: Client) -> None:
    client.create()
    client.commit(drafted(client.metadata(), (1, "x"), **{**RUN, "note": "\u2028 \\u0000 'ü\""}))
    found = find_run(client.services, NS, "t", "r")
    assert found is not None
    assert found.summary["note"] == "\u2028 \\u0000 'ü\""


def post(client: Client, id_: int, txn: TxnId | None = None, key: UUID | None = None) -> RowsAnswer:
    services = replace(client.services, once=None if key is None else Once(key, b"posted"))
    body = json.dumps([{"id": id_, "name": "posted"}]).encode()
    return append_rows(services, PostedRows(NS, "t", body, "application/json", txn=txn))


TXNS_MIGRATION = next(each.number for each in load_migrations() if each.name.endswith("_txns.sql"))
RUN = {"duckicelake.run-id": "r", "duckicelake.run-epoch": "3"}
KEY = UUID("01890000-0000-7000-8000-000000000000")


def put_back(cursor: Cursor[Any]) -> None:
    """Make the lake one whose servers had other tables for producers and runs, with what they had recorded."""
    texts = {migration.number: migration.sql for migration in load_migrations()}
    cursor.execute("DROP VIEW duckicelake_producer, duckicelake_run")
    cursor.execute(texts[14])
    cursor.execute(texts[15])
    cursor.execute("""
        INSERT INTO duckicelake_producer
        SELECT table_id, app_id, version, snapshot_id, applied FROM duckicelake_txn WHERE NOT is_run;
        INSERT INTO duckicelake_run
        SELECT table_id, app_id, version, iceberg_snapshot_id, applied, summary FROM duckicelake_txn WHERE is_run;
        DROP TABLE duckicelake_txn
    """)
    cursor.execute("DELETE FROM duckicelake_migration WHERE number = %s", [TXNS_MIGRATION])


def test_what_was_applied_before_an_upgrade_is_applied_once(client: Client) -> None:
    client.create()
    client.commit(drafted(client.metadata(), (1, "run"), **RUN))
    batch = {"txn.app-id": "loader", "txn.version": "7"}
    client.commit(drafted(client.metadata(), (2, "batch"), **batch))
    answers = [post(client, 3, TxnId("stream", 5)), post(client, 4, key=KEY)]
    before = find_run(client.services, NS, "t", "r")
    with client.services.database.transaction() as cursor:
        put_back(cursor)
    with client.services.database.transaction() as cursor:
        apply_migrations(cursor)
    upgraded = Client(replace(client.services, cache=TableCache(), commits=CommitQueue()))
    assert find_run(upgraded.services, NS, "t", "r") == before
    with pytest.raises(TxnAlreadyCommittedError, match="Epoch 3 of run r"):
        upgraded.commit(drafted(upgraded.metadata(), (9, "again"), **RUN))
    with pytest.raises(TxnAlreadyCommittedError, match="Version 7 of loader"):
        upgraded.commit(drafted(upgraded.metadata(), (9, "again"), **batch))
    with pytest.raises(TxnAlreadyAppliedError, match="Version 5 of stream"):
        post(upgraded, 9, TxnId("stream", 5))
    assert post(upgraded, 4, key=KEY) == answers[1]
    post(upgraded, 5, TxnId("stream", 6))
    upgraded.commit(drafted(upgraded.metadata(), (6, "run"), **(RUN | {"duckicelake.run-epoch": "4"})))
    assert [id_ for id_, _ in pyiceberg_rows(upgraded.load())] == [1, 2, 3, 4, 5, 6]
