"""Commits right after a process's own last one, which ask for nothing: they find what others did since all the same."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import duckdb
import pytest

from duckicelake.catalog.commit.run import SELDOM
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitFailedError
from duckicelake.lake.inlined.last_commit import STABLE_AFTER_COMMITS
from duckicelake.lake.writer import groups
from duckicelake.properties import MAX_LISTED
from tests.catalog.commit.test_crashes import assert_whole_catalog
from tests.support.client import Client, Row, append, duckdb_rows, pyiceberg_rows, set_properties
from tests.support.seams import fresh


@dataclass(slots=True)
class Others:
    """Who else writes to the lake: DuckDB, and another worker."""

    ducklake: duckdb.DuckDBPyConnection
    worker: Client
    rows: list[Row] = field(default_factory=list)

    def insert(self) -> None:
        self.ducklake.execute("INSERT INTO lake.ns.t VALUES (100, 'theirs')")
        self.rows = [(100, "theirs")]

    def insert_and_load(self) -> None:
        self.insert()
        self.worker.load()

    def append(self) -> None:
        self.worker.append((100, "theirs"))
        self.rows = [(100, "theirs")]

    def set_properties(self) -> None:
        self.worker.commit({"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]})

    def create_elsewhere(self) -> None:
        self.ducklake.execute("CREATE TABLE lake.ns.other (id BIGINT)")


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The snapshots that commits were to follow without asking."""
    found: list[int] = []
    claim_after = groups.claim_snapshot_after

    def noted(cursor, wanted, last, change):  # type: ignore[no-untyped-def]
        found.append(last.snapshot_id)
        return claim_after(cursor, wanted, last, change)

    monkeypatch.setattr(groups, "claim_snapshot_after", noted)
    return found


@pytest.fixture
def worker(services: Services, client: Client) -> Client:
    """One that was alone with its table for a while."""
    client.create()
    calm = Client(replace(fresh(services), commits=CommitQueue(expected_commits=0)))
    for number in range(STABLE_AFTER_COMMITS + 2):
        calm.append((number, None))
    return calm


def test_commit_follows_the_last_one_without_asking(
    services: Services, worker: Client, ducklake: duckdb.DuckDBPyConnection, followed: list[int]
) -> None:
    before = len(followed)
    answer = worker.append((50, "own"))
    assert len(followed) == before + 1
    assert (
        pyiceberg_rows(answer)
        == duckdb_rows(ducklake)
        == [*((n, None) for n in range(STABLE_AFTER_COMMITS + 2)), (50, "own")]
    )
    assert_whole_catalog(services)


@pytest.mark.parametrize(
    "act",
    [Others.insert, Others.insert_and_load, Others.append, Others.set_properties, Others.create_elsewhere],
)
def test_commit_finds_what_others_did_since(
    services: Services,
    worker: Client,
    ducklake: duckdb.DuckDBPyConnection,
    followed: list[int],
    act: Callable[[Others], None],
) -> None:
    metadata, others = worker.metadata(), Others(ducklake, Client(fresh(services)))
    act(others)
    if others.rows:
        with pytest.raises(CommitFailedError):
            worker.commit(append(metadata, (50, "own")))
        metadata = worker.metadata()
    worker.commit(append(metadata, (50, "own")))
    wanted = sorted([*((n, None) for n in range(STABLE_AFTER_COMMITS + 2)), *others.rows, (50, "own")])
    assert pyiceberg_rows(worker.load()) == duckdb_rows(ducklake) == wanted
    assert_whole_catalog(services)
    for number in range(STABLE_AFTER_COMMITS + 2):
        worker.append((200 + number, "later"))
    assert followed
    assert duckdb_rows(ducklake) == pyiceberg_rows(worker.load())
    assert_whole_catalog(services)


def test_commit_follows_what_the_process_itself_let_go_of(
    services: Services, worker: Client, ducklake: duckdb.DuckDBPyConnection, followed: list[int]
) -> None:
    """Files of snapshots that have left history are let go of with a DuckLake snapshot that is no commit's."""
    metadata = worker.commit(set_properties(**{MAX_LISTED: "2"}))["metadata"]
    before, missed = newest_and_scheduled(services), 0
    for number in range(3 * SELDOM):
        metadata = worker.commit(append(metadata, (300 + number, "later")))["metadata"]
        after = newest_and_scheduled(services)
        missed += followed[-1:] != [before[0]]
        before = after
    newest, scheduled = before
    assert newest > 3 * SELDOM + STABLE_AFTER_COMMITS + 2 + 2
    assert scheduled > 0
    assert missed == 1  # the first, as removing many at once is another transaction's first step
    assert worker.services.commits.is_calm
    assert duckdb_rows(ducklake) == pyiceberg_rows(worker.load())
    assert_whole_catalog(services)


def newest_and_scheduled(services: Services) -> tuple[int, int]:
    """DuckLake's newest snapshot, and how many files its next cleanup deletes."""
    with services.database.reading() as cursor:
        asked = "SELECT (SELECT max(snapshot_id) FROM ducklake_snapshot), count(*)"
        (found,) = cursor.execute(f"{asked} FROM ducklake_files_scheduled_for_deletion").fetchall()
    return found
