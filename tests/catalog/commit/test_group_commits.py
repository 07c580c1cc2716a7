"""Commits that wait at the same time share a transaction, fail each by itself, and leave DuckDB its turn."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from threading import Event, Semaphore
from typing import Any

import duckdb
import psycopg
import pytest

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.combiner import CombinedBatch, CombiningQueue
from duckicelake.catalog.context.commit_queue import CommitQueue, QueuedCommit
from duckicelake.catalog.context.meter import NO_METER
from duckicelake.catalog.context.services import Services
from duckicelake.errors import AlreadyExistsError, CommitFailedError, InvalidRequestError
from duckicelake.lake.ducklake.snapshots import QUEUE_KEY, begin_snapshot, observe_duckdb, record_changes
from duckicelake.postgres.queries import Transaction
from tests.support.client import Client, append, duckdb_rows, pyiceberg_rows, set_properties
from tests.support.waits import wait_until


@dataclass
class Ears:
    """A meter that remembers how many commits were written together, and whether there was a pause."""

    groups: list[int] = field(default_factory=list)
    pauses: int = 0

    def written_together(self, commits: int) -> None:
        self.groups.append(commits)

    def phase(self, phase: str) -> Any:
        self.pauses += phase == "duckdb_pause"
        return NO_METER.phase("plan")

    def __getattr__(self, name: str) -> Any:
        return getattr(NO_METER, name)


@contextmanager
def held_up(services: Services) -> Iterator[None]:
    """No one of the process writes while the block runs; who wants to waits in line."""
    with services.commits.alone(services.database):
        yield


def waiting(queue: CommitQueue) -> int:
    return len(queue._turns._waiting)


def sent_together(services: Services, work: Sequence[Any]) -> list[Any]:
    """The results, or errors, of commits that all waited in one line before the first was written."""
    with ThreadPoolExecutor(len(work)) as pool:
        with held_up(services):
            futures: list[Future[Any]] = [pool.submit(each) for each in work]
            wait_until(lambda: waiting(services.commits) == len(work))
        return [future.exception() or future.result() for future in futures]


def heard(services: Services) -> tuple[Client, Ears]:
    ears: Any = Ears()
    return Client(replace(services, meter=ears)), ears


def test_commits_that_wait_are_written_in_one_transaction_with_a_snapshot_each(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    bodies = {name: append(client.create(name)["metadata"], (1, name)) for name in ("a", "b", "c")}
    crowd, ears = heard(services)
    answers = sent_together(services, [lambda n=n, b=b: crowd.commit(b, n) for n, b in bodies.items()])
    assert ears.groups == [3]
    ids = [int(answer["metadata"]["snapshots"][0]["summary"]["ducklake.snapshot-id"]) for answer in answers]
    assert max(ids) - min(ids) == 2
    with services.database.reading() as cursor:
        written = cursor.execute(
            "SELECT count(DISTINCT xmin::text), array_agg(changes_made ORDER BY snapshot_id) "
            "FROM ducklake_snapshot_changes WHERE snapshot_id = ANY(%s)",
            [ids],
        ).fetchone()
        entries = cursor.execute(
            "SELECT resource, snapshot_id FROM duckicelake_audit WHERE snapshot_id = ANY(%s) ORDER BY 1", [ids]
        ).fetchall()
    assert written is not None
    assert written[0] == 1
    assert all(text.startswith("inserted_into_table:") for text in written[1])
    assert entries == [(f"ns.{name}", id_) for name, id_ in zip(bodies, ids, strict=True)]
    for name, answer in zip(bodies, answers, strict=True):
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake, name) == [(1, name)]


def test_one_whose_base_has_moved_is_left_out_of_the_transaction_and_computed_again(
    services: Services, client: Client
) -> None:
    """Two change one table's properties, one appends to another: none of them fails, two are written at first."""
    client.create("a")
    body = append(client.create("b")["metadata"], (1, "b"))
    crowd, ears = heard(services)
    work = [
        lambda: crowd.commit(set_properties(x="1"), "a"),
        lambda: crowd.commit(set_properties(y="2"), "a"),
        lambda: crowd.commit(body, "b"),
    ]
    assert not [each for each in sent_together(services, work) if isinstance(each, Exception)]
    assert ears.groups == [2, 1]
    assert {"x": "1", "y": "2"}.items() <= client.metadata("a")["properties"].items()
    assert pyiceberg_rows(client.load("b")) == [(1, "b")]


def test_two_that_append_to_the_same_snapshot_in_one_transaction_conflict(services: Services, client: Client) -> None:
    metadata = client.create()["metadata"]
    work = [lambda n=n: client.commit(append(metadata, (n, None))) for n in range(2)]
    outcomes = sent_together(services, work)
    assert sorted(type(each).__name__ for each in outcomes) == ["CommitFailedError", "dict"]
    (refused,) = [each for each in outcomes if isinstance(each, CommitFailedError)]
    assert "was created concurrently" in str(refused)


def test_two_that_create_the_same_table_in_one_transaction_conflict(services: Services, client: Client) -> None:
    outcomes = sent_together(services, [lambda name=name: client.create(name) for name in ("t", "t", "u")])
    assert [type(each) for each in outcomes if isinstance(each, Exception)] == [AlreadyExistsError]
    assert client.metadata("u")["location"] != client.metadata("t")["location"]


def test_one_that_postgres_refuses_fails_alone(services: Services, client: Client) -> None:
    """Its statement fails in the midst of the transaction; the others are written without it."""
    good = append(client.create("good")["metadata"], (1, "one"))
    client.create("bad")
    with services.database.transaction() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'too much' USING ERRCODE = '54000'; END $$;"
            "CREATE TRIGGER refuse BEFORE UPDATE ON duckicelake_table FOR EACH ROW "
            "WHEN (NEW.metadata::text LIKE '%poison%') EXECUTE FUNCTION refuse()"
        )
    outcomes = sent_together(
        services, [lambda: client.commit(set_properties(a="poison"), "bad"), lambda: client.commit(good, "good")]
    )
    assert isinstance(outcomes[0], InvalidRequestError)
    assert pyiceberg_rows(outcomes[1]) == [(1, "one")]
    assert "a" not in client.metadata("bad")["properties"]


def test_a_turn_of_its_own_keeps_no_transaction_open(services: Services, database_url: str) -> None:
    with services.commits.alone(services.database), psycopg.connect(database_url, autocommit=True) as other:
        rows = other.execute(
            "SELECT a.state, a.xact_start FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
            "WHERE l.locktype = 'advisory' AND l.objid = %s AND l.granted AND l.mode = 'ExclusiveLock'",
            [QUEUE_KEY & 0xFFFFFFFF],
        ).fetchall()
    assert rows == [("idle", None)]


def test_a_turn_of_its_own_keeps_commits_of_other_processes_out(services: Services, client: Client) -> None:
    body = append(client.create()["metadata"], (1, "one"))
    other = Client(replace(services, cache=TableCache(), commits=CommitQueue()))
    with ThreadPoolExecutor(1) as pool:
        with services.commits.alone(services.database):
            late = pool.submit(other.commit, body)
            with pytest.raises(TimeoutError):
                late.result(0.3)
        assert pyiceberg_rows(late.result(20)) == [(1, "one")]


def test_what_one_thread_raises_while_it_does_the_work_of_all_reaches_no_other() -> None:
    turns, done = CombiningQueue[int](8), list[int]()

    def act(batch: Sequence[int]) -> None:
        done.extend(batch)
        raise ValueError(batch)

    with ThreadPoolExecutor(3) as pool:
        with turns.alone():
            futures = [pool.submit(turns.do, number, act) for number in range(3)]
            wait_until(lambda: len(turns._waiting) == 3)
        errors = [future.exception() for future in futures]
    assert sorted(done) == [0, 1, 2]
    assert sorted(type(error).__name__ for error in errors) == ["NoneType", "NoneType", "ValueError"]


def test_works_go_together_up_to_a_limit_whether_or_not_a_thread_waits_for_them() -> None:
    turns, groups, finished = CombiningQueue[int](3), list[list[int]](), Semaphore(0)

    def act(batch: Sequence[int]) -> None:
        groups.append(list(batch))

    with ThreadPoolExecutor(2) as pool:
        with turns.alone():
            for work in range(1, 5):
                turns.enqueue(work, act, finished.release)
            for work in (5, 6):
                pool.submit(turns.do, work, act)
                wait_until(lambda work=work: len(turns._waiting) == work)
            assert groups == []
        assert all(finished.acquire(timeout=20) for _ in range(4))
    assert groups == [[1, 2, 3], [4, 5, 6]]


def test_works_that_wait_without_a_thread_are_done_though_those_before_them_failed() -> None:
    turns, done, finished, may_go_on = CombiningQueue[int](8), list[list[int]](), list[int](), Event()

    def act(batch: CombinedBatch[int]) -> None:
        assert may_go_on.wait(10)
        done.append(list(batch))
        if 1 in batch:
            raise LookupError

    for work in (1, 2, 3):
        turns.enqueue(work, act, partial(finished.append, work))
        wait_until(lambda work=work: len(turns._waiting) == work - 1)
    may_go_on.set()
    wait_until(lambda: len(finished) == 3)
    assert done == [[1], [2, 3]]
    assert finished == [1, 2, 3]


def test_works_that_come_while_a_turn_waits_for_others_are_done_in_it() -> None:
    turns, done = CombiningQueue[int](8), list[list[int]]()

    def act(batch: CombinedBatch[int]) -> None:
        wait_until(lambda: len(batch) + len(turns._waiting) == 3)
        batch.grow()
        done.append(sorted(batch))

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(turns.do, number, act) for number in range(3)]:
            future.result(20)
    assert done == [[0, 1, 2]]


def test_commits_that_come_while_another_process_writes_join_those_that_wait_for_it(
    services: Services, client: Client
) -> None:
    bodies = {name: append(client.create(name)["metadata"], (1, name)) for name in ("a", "b", "c")}
    crowd, ears = heard(services)
    crowd.services.commits._is_crowded = True
    with ThreadPoolExecutor(3) as pool:
        with services.database.transaction() as other:
            begin_snapshot(other, schema_change=False)
            answers = [pool.submit(crowd.commit, body, name) for name, body in bodies.items()]
            wait_until(lambda: waiting(services.commits) == 2)
            other.connection.rollback()
        for name, answer in zip(bodies, answers, strict=True):
            assert pyiceberg_rows(answer.result(20)) == [(1, name)]
    assert ears.groups == [3]


def test_duckdb_client_that_waits_for_our_snapshot_id_is_seen_and_left_a_pause(
    services: Services, client: Client, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction stands still before its COMMIT until something like DuckDB wants the same id; it sees that.

    Its snapshot's time is ahead, so that no time seems to have passed before the next one.
    """
    monkeypatch.setattr("duckicelake.catalog.context.commit_queue._OBSERVED_SECONDS", inf)
    body = append(client.create()["metadata"], (1, "one"))
    crowd, ears = heard(services)
    seen: list[bool] = []

    def settle(cursor: Transaction, _: object) -> None:
        made = begin_snapshot(cursor, schema_change=False)
        record_changes(cursor, made.id, [])
        ahead = "UPDATE ducklake_snapshot SET snapshot_time = now() + interval '1 hour' WHERE snapshot_id = %s"
        cursor.execute(ahead, [made.id])
        seen.append(waits(cursor))
        losers.append(pool.submit(insert, made.id))
        wait_until(lambda: waits(cursor))

    def waits(cursor: Transaction) -> bool:
        return observe_duckdb(cursor)().is_waiting

    def insert(snapshot_id: int) -> None:
        with psycopg.connect(database_url) as duckdb_like:
            duckdb_like.execute("INSERT INTO ducklake_snapshot VALUES (%s, now(), 1, 1, 1)", [snapshot_id])

    with ThreadPoolExecutor(1) as pool:
        losers: list[Future[None]] = []
        crowd.commit(set_properties(a="b"))
        services.commits.write(services.database, crowd.services.meter, QueuedCommit((), settle=settle))
        assert isinstance(losers[0].exception(), psycopg.errors.UniqueViolation)
    assert seen == [False]
    assert ears.pauses == 0
    crowd.commit(body)
    assert ears.pauses == 1


def test_only_who_was_rolled_back_since_the_last_snapshot_seems_to_have_lost_it(
    services: Services, client: Client, database_url: str
) -> None:
    """Clients that read, and others that write elsewhere, would be left pauses for nothing.

    So would one that has just got an id, while a transaction of ours was rolled back.
    """
    client.create()

    def lost(author: str | None = "us") -> bool:
        with services.database.transaction() as cursor:
            made = begin_snapshot(cursor, schema_change=False)
            record_changes(cursor, made.id, [], author=author)
            return observe_duckdb(cursor)().has_lost

    with psycopg.connect(database_url, autocommit=True) as other:
        lost()
        other.execute("SELECT pg_current_xact_id()")
        assert not lost()
        with pytest.raises(psycopg.errors.UniqueViolation):
            other.execute("INSERT INTO ducklake_snapshot SELECT * FROM ducklake_snapshot")
        assert lost()
        assert not lost(author=None)
        with pytest.raises(psycopg.errors.UniqueViolation):
            other.execute("INSERT INTO ducklake_snapshot SELECT * FROM ducklake_snapshot")
        assert not lost()


def test_commit_is_acknowledged_though_the_session_that_kept_the_others_out_died(
    services: Services, client: Client, database_url: str
) -> None:
    """Neither is it called unwritten, nor does anybody wait for the dead session's place."""
    body = append(client.create()["metadata"], (1, "one"))
    turns = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'"
    with services.commits.alone(services.database):
        commit = QueuedCommit((), settle=lambda _, __: None)
        services.commits.write_alone(services.database, NO_METER, commit)
        with psycopg.connect(database_url, autocommit=True) as other:
            assert other.execute(turns).fetchall() == [(True,)]
    assert commit.result() == []
    client.commit(body)
    assert pyiceberg_rows(client.load()) == [(1, "one")]
