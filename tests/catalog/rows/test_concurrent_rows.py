"""Posted rows beside other writers and readers: DuckDB's clients see them and get their turn, and so do upserts."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from threading import Semaphore
from typing import Any

import duckdb
import psycopg
import pytest

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.deletes import DeleteRequest, delete_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows, enqueue_rows, find_answer, prepare_to_join
from duckicelake.catalog.rows.upserts import upsert_rows
from duckicelake.lake.ducklake import inlined_rows
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.snapshots import begin_snapshot
from tests.catalog.commit.test_group_commits import Ears, sent_together, waiting
from tests.support.lakes import Lake, iceberg_rows
from tests.support.waits import counted_waits, wait_until

KEY = ("id",)


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    ducklake.execute("CREATE TABLE lake.t (id BIGINT NOT NULL, v BIGINT)")
    return Lake(services, ducklake)


def posted(*rows: tuple[int, int]) -> PostedRows:
    body = json.dumps([{"id": id_, "v": v} for id_, v in rows]).encode()
    return PostedRows(("main",), "t", body, "application/json")


def superseded(lake: Lake, supersede: Callable[[int], None]) -> list[int]:
    """Before each write that doesn't have the queue to itself another is faster; how often is told afterwards."""
    commits, count = lake.services.commits, [0]
    write = commits.write

    def late(*arguments: Any) -> Any:
        count[0] += 1
        supersede(count[0])
        return write(*arguments)

    commits.write = late  # type: ignore[method-assign,assignment]
    return count


def test_client_that_knew_of_no_inlined_rows_sees_those_that_are_posted_first(lake: Lake, attach: Any) -> None:
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE lake.u (id BIGINT, v BIGINT)")
    lake.run("INSERT INTO lake.u VALUES (1, 1)", "CALL lake.set_option('data_inlining_row_limit', 10)")
    reader = attach()
    assert reader.execute("FROM lake.u").fetchall() == [(1, 1)]
    works = [partial(append_rows, lake.services, replace(posted((id_, id_)), table="u")) for id_ in (2, 3)]
    assert len({answer.snapshot_id for answer in sent_together(lake.services, works)}) == 1
    assert sorted(reader.execute("FROM lake.u").fetchall()) == [(1, 1), (2, 2), (3, 3)]
    lake.run("INSERT INTO lake.u VALUES (4, 4)")
    append_rows(lake.services, replace(posted((5, 5)), table="u"))
    assert sorted(reader.execute("FROM lake.u").fetchall()) == lake.duck_rows("u") == [(n, n) for n in range(1, 6)]
    versions = lake.sql("SELECT DISTINCT schema_version FROM ducklake_snapshot ORDER BY 1 DESC LIMIT 2")
    assert versions == [(3,), (2,)]
    assert iceberg_rows(lake.static("u")) == lake.duck_rows("u")


def test_small_batches_that_come_while_others_write_are_written_with_those_before_them(lake: Lake) -> None:
    append_rows(lake.services, posted((0, 0)))
    commits = [prepare_to_join(lake.services, posted((id_, id_))) for id_ in (1, 2, 3)]
    lake.services.commits._is_crowded = True
    finished = Semaphore(0)
    with lake.services.database.transaction() as other:
        begin_snapshot(other, schema_change=False)
        for number, commit in enumerate(commits):
            assert commit is not None
            enqueue_rows(lake.services, commit, finished.release)
            wait_until(lambda number=number: waiting(lake.services.commits) == number)
        other.connection.rollback()
    assert all(finished.acquire(timeout=20) for _ in commits)
    answers = [find_answer(commit) for commit in commits if commit is not None]
    assert [each.first_row_id for each in answers if each is not None] == [1, 2, 3]
    assert len({each.snapshot_id for each in answers if each is not None}) == 1
    assert lake.duck_rows() == [(id_, id_) for id_ in range(4)]


def test_upserts_of_one_key_into_an_empty_table_leave_one_row_though_they_share_a_transaction(lake: Lake) -> None:
    works: list[Any] = [partial(upsert_rows, lake.services, posted((1, v)), KEY) for v in range(3)]
    works.insert(1, partial(append_rows, lake.services, posted((2, 2))))
    assert [each for each in sent_together(lake.services, works) if isinstance(each, Exception)] == []
    assert [id_ for id_, _ in lake.duck_rows()] == [1, 2]
    assert iceberg_rows(lake.static()) == lake.duck_rows()


def test_upsert_into_an_empty_table_finds_the_row_that_came_before_it_was_written(lake: Lake) -> None:
    superseded(lake, lambda n: lake.run("INSERT INTO lake.t VALUES (1, 0)") if n == 1 else None)
    upsert_rows(lake.services, posted((1, 5)), KEY)
    assert iceberg_rows(lake.static()) == lake.duck_rows() == [(1, 5)]


@pytest.mark.parametrize("verb", ["upsert", "delete"])
def test_keys_get_their_turn_beside_rows_that_never_end(lake: Lake, verb: str) -> None:
    append_rows(lake.services, posted((1, 0)))
    count = superseded(lake, lambda n: lake.run(f"INSERT INTO lake.t VALUES ({100 + n}, 0)"))
    if verb == "upsert":
        upsert_rows(lake.services, posted((1, 5)), KEY)
    else:
        delete_rows(lake.services, DeleteRequest(("main",), "t", b'{"keys": [{"id": 1}]}', KEY))
    assert 0 < count[0] < 10
    kept = [(1, 5)] if verb == "upsert" else []
    assert lake.duck_rows() == [*kept, *((101 + n, 0) for n in range(count[0]))]
    assert iceberg_rows(lake.static()) == lake.duck_rows()


@pytest.mark.parametrize("wants", ["a snapshot id", "to read"])
def test_duckdb_client_that_came_too_late_for_an_id_is_noticed_and_left_a_pause(
    lake: Lake, database_url: str, monkeypatch: pytest.MonkeyPatch, wants: str
) -> None:
    """The pauses' length shows in no clock: the last snapshot's time is ahead, so that none seems to have passed."""
    append_rows(lake.services, posted((1, 1)))
    newest = append_rows(lake.services, posted((2, 2))).snapshot_id
    monkeypatch.setattr("duckicelake.catalog.context.commit_queue._SUSPECTED", inf)
    lake.services.commits._backoff._until = 0.0
    ears: Any = Ears()
    heard = replace(lake.services, meter=ears)
    with psycopg.connect(database_url, autocommit=True) as duckdb_like:
        if wants == "to read":
            duckdb_like.execute("SELECT max(snapshot_id) FROM ducklake_snapshot")
        else:
            with pytest.raises(psycopg.errors.UniqueViolation):
                duckdb_like.execute("INSERT INTO ducklake_snapshot VALUES (%s, now(), 1, 1, 1)", [newest])
        append_rows(heard, posted((3, 3)))
        assert ears.pauses == 0
        ahead = "UPDATE ducklake_snapshot SET snapshot_time = now() + interval '1 hour' WHERE snapshot_id = %s"
        duckdb_like.execute(ahead, [lake.newest()])
    append_rows(heard, posted((4, 4)))
    assert ears.pauses == (wants == "a snapshot id")
    assert iceberg_rows(lake.static()) == lake.duck_rows()


def test_load_between_posts_asks_nothing_twice_and_reads_no_more_the_more_was_posted(
    lake: Lake, database_url: str
) -> None:
    asked: list[str] = []

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        asked.append(name)
        yield

    database = open_lake_database(database_url, traced=noted)
    served = Lake(replace(lake.services, database=database, cache=TableCache()), lake.duck)
    try:
        append_rows(lake.services, posted((1, 1)))
        served.metadata()
        counts = []
        for number in range(2, 8):
            for id_ in range(number):
                append_rows(lake.services, posted((number * 10 + id_, id_)))
            asked.clear()
            served.metadata()
            counts.append(len(asked))
            reads = [name for name in asked if name.split(".")[0] in {"native", "state", "inlined", "freshness"}]
            assert len(set(reads)) == len(reads)
        assert set(counts) == {counts[0]}
        assert counts[0] <= 28
        assert iceberg_rows(served.static()) == lake.duck_rows()
    finally:
        database.close()


def test_load_between_posts_waits_for_postgres_as_often_however_much_was_posted(lake: Lake) -> None:
    append_rows(lake.services, posted((1, 1)))
    lake.metadata()
    for number in range(2, 6):
        for id_ in range(number):
            append_rows(lake.services, posted((number * 10 + id_, id_)))
        with counted_waits() as waits:
            lake.metadata()
        assert 0 < len(waits) <= 17


def test_load_between_posts_reads_the_rows_that_are_new_and_no_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_rows(lake.services, posted((1, 1), (2, 2)))
    lake.run("UPDATE lake.t SET v = 3 WHERE id = 1")
    assert iceberg_rows(lake.static()) == lake.duck_rows()

    def asked_rows(*_: object) -> Any:
        raise AssertionError("all rows are read")

    with monkeypatch.context() as patched:
        patched.setattr(inlined_rows, "build_rows_query", asked_rows)
        append_rows(lake.services, posted((4, 4)))
        assert iceberg_rows(lake.static()) == [(1, 3), (2, 2), (4, 4)]
        lake.run("DELETE FROM lake.t WHERE id = 2")
        with pytest.raises(AssertionError):
            lake.static()
    assert iceberg_rows(lake.static()) == lake.duck_rows() == [(1, 3), (4, 4)]
