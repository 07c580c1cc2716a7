"""Commits that must happen once: a run's epoch is refused a second time, whoever sends it and however late."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from duckicelake.catalog.commit.rules import find_run
from duckicelake.errors import CommitFailedError, InvalidRequestError, UnprocessableError
from tests.catalog.commit.test_append_rebase import REBASE, drafted
from tests.support.client import NS, Client, Json, append, pyiceberg_rows


def stamped(metadata: Json, epoch: object, *rows: tuple[int, str], run: str = "r") -> Json:
    run_keys = {"duckicelake.run-id": run, "duckicelake.run-epoch": str(epoch)}
    return drafted(metadata, *rows, **run_keys)


def test_epoch_is_committed_once_and_none_before_it_but_other_runs_are(client: Client) -> None:
    client.create()
    for epoch in (0, 3):
        client.commit(stamped(client.metadata(), epoch, (epoch, "new")))
    for epoch in (3, 2, 0):
        with pytest.raises(
            UnprocessableError, match=f"Epoch {epoch} of run r was committed before: epoch 3 is snapshot"
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
    with pytest.raises(UnprocessableError, match="was committed before"):
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
            except UnprocessableError:
                return False
            else:
                return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [False] * 7 + [True]
    assert len(pyiceberg_rows(client.load())) == 1


@pytest.mark.parametrize("epoch", ["", "-1", "one", "9" * 30])
def test_epoch_that_is_no_number_is_refused(client: Client, epoch: str) -> None:
    client.create()
    with pytest.raises(InvalidRequestError, match="whole number"):
        client.commit(stamped(client.metadata(), epoch, (1, "one")))
    body = append(client.metadata(), (1, "one"))
    body["updates"][0]["snapshot"]["summary"]["duckicelake.run-epoch"] = "1"
    with pytest.raises(InvalidRequestError, match="beside"):
        client.commit(body)
