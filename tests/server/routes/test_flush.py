"""Flushing over HTTP, and the thread that does it by itself."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog import flush as flusher
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import Thresholds, find_waiting_tables, flush_if_free, flush_in_background
from duckicelake.errors import NoSuchTableError, UnavailableError
from duckicelake.lake.ducklake.maintenance import FlushableRows
from duckicelake.lake.inlined import flush_writer
from duckicelake.server.app import create_app
from duckicelake.server.telemetry.metrics import Metrics
from tests.server.telemetry.test_metrics import counts
from tests.support.client import new_client
from tests.support.seams import Fuse, FusedStore

FLUSH = "/v1/namespaces/ns/tables/t/rows/flush"
KEY = "01999999-0000-7000-8000-000000000002"
Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def filled(services: Services, ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    new_client(services).create()
    return ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'one'), (2, 'two')")


def test_flush_answers_what_it_did_and_again_when_the_answer_was_lost(
    services: Services, serve: Serve, filled: duckdb.DuckDBPyConnection
) -> None:
    http = serve(create_app(services))
    answers = [http.post(FLUSH, headers={"Idempotency-Key": KEY}).json() for _ in range(2)]
    ((newest,),) = filled.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    assert answers == [{"files": 1, "rows": 2, "deletes": 0, "snapshot-id": newest}] * 2
    assert http.post(FLUSH).json() == {"files": 0, "rows": 0, "deletes": 0, "snapshot-id": None}
    assert counts(http, "rows_flushed_total") == {"": 2.0}
    assert http.post(FLUSH.replace("/t/", "/absent/")).json()["error"]["type"] == "NoSuchTableException"


@pytest.mark.usefixtures("filled")
def test_tables_that_wait_are_found_by_name_and_left_to_who_has_the_lease(services: Services) -> None:
    (table,) = find_waiting_tables(services)
    assert (table.schema_name, table.table_name, table.rows, table.deletes) == ("ns", "t", 2, 0)
    assert find_waiting_tables(services, "ns") == find_waiting_tables(services, "ns.t") == [table]
    with pytest.raises(NoSuchTableError, match=r"ns\.absent is neither a table nor a namespace"):
        find_waiting_tables(services, "ns.absent")
    with services.database.statement() as cursor, flush_writer.hold_flush_lease(cursor, table.table_id) as ours:
        assert ours
        assert flush_if_free(services, table) is None
    flushed = flush_if_free(services, table)
    assert flushed is not None
    assert flushed.rows == 2
    assert find_waiting_tables(services) == []


@pytest.mark.parametrize(
    ("thresholds", "reached"),
    [
        (Thresholds(), False),
        (Thresholds(rows=2), True),
        (Thresholds(rows=3, bytes=101, age=5001), False),
        (Thresholds(rows=3, bytes=100, age=5001), True),
        (Thresholds(rows=3, bytes=101, age=5000), True),
    ],
)
def test_each_threshold_alone_is_enough(thresholds: Thresholds, reached: bool) -> None:
    assert thresholds.is_reached_by(FlushableRows(1, "ns", "t", 2, 0, 100, oldest_ms=1000, age_ms=5000)) is reached


@contextmanager
def until_flushed(services: Services, thresholds: Thresholds, failed: Callable[..., object] = print) -> Iterator[None]:
    """The flusher, until it has flushed something since what the block does."""
    done = threading.Event()

    class Heard(Metrics):
        def rows_flushed(self, rows: int) -> None:  # noqa: ARG002
            done.set()

    with flush_in_background(replace(services, meter=Heard(dict)), thresholds, failed):
        yield
        assert done.wait(30)


@pytest.fixture
def two(services: Services, ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Two tables, with rows in the second one."""
    client = new_client(services)
    for name in ("first", "second"):
        client.create(name)
    return ducklake.execute("INSERT INTO lake.ns.second VALUES (2, 'two')")


@pytest.mark.parametrize("by_ms", [24 * 3_600_000, -24 * 3_600_000])
def test_age_is_reported_by_the_clock_that_shows_the_times_of_snapshots(
    services: Services, two: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, by_ms: int
) -> None:
    """Of a server whose clock is wrong, too."""
    monkeypatch.setattr(flusher, "PAUSE_SECONDS", 0.01)
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_snapshot SET snapshot_time = snapshot_time - interval '1 hour'")
    two.execute("INSERT INTO lake.ns.first VALUES (1, 'one')")
    with until_flushed(replace(services, clock=lambda: services.clock() + by_ms), Thresholds(age=1_800_000)):
        pass
    assert [table.table_name for table in find_waiting_tables(services)] == ["first"]


def test_rows_older_than_any_snapshot_are_old(
    services: Services, two: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "PAUSE_SECONDS", 0.01)
    two.execute("INSERT INTO lake.ns.first VALUES (1, 'one')")
    two.execute("CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)")
    with until_flushed(services, Thresholds(age=1_800_000)):
        pass
    assert [table.table_name for table in find_waiting_tables(services)] == ["first"]


def test_table_that_cannot_be_flushed_does_not_keep_others_waiting_even_if_no_one_can_be_reported(
    services: Services, two: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "PAUSE_SECONDS", 0.01)
    two.execute("INSERT INTO lake.ns.first VALUES (1, 'one')")
    report: list[object] = []

    def fail_once() -> None:
        if not report:
            raise RuntimeError("the store is broken")

    def failed(table: FlushableRows | None, error: Exception) -> None:
        report.append((table and table.table_name, str(error)))
        raise RuntimeError("nobody hears")

    broken = replace(services, store=FusedStore(services.store, Fuse(0, fail_once)))
    with until_flushed(broken, Thresholds(rows=1), failed):
        pass
    assert report == [("first", "the store is broken")]
    assert [table.table_name for table in find_waiting_tables(services)] == ["first"]


def silent() -> None:
    raise UnavailableError("the store does not answer")


@pytest.mark.usefixtures("filled")
def test_flusher_flushes_by_itself_says_what_it_cannot_and_ends_with_its_context(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "PAUSE_SECONDS", 0.01)
    noticed = threading.Event()
    failures: list[tuple[Any, Exception]] = []

    def failed(table: Any, error: Exception) -> None:
        failures.append((table, error))
        noticed.set()

    measured = Metrics(dict)
    broken = replace(services, store=FusedStore(services.store, Fuse(0, silent)), meter=measured)
    with flush_in_background(broken, Thresholds(rows=1), failed):
        assert noticed.wait(30)
    assert b'duckicelake_task_failures_total{task="flush"} 1.0' in measured.render()
    (waiting,) = find_waiting_tables(services)
    assert [(table, str(error)) for table, error in failures] == [(waiting, "the store does not answer")]
    done = threading.Event()
    heard: list[int] = []

    class Heard(Metrics):
        def rows_flushed(self, rows: int) -> None:
            heard.append(rows)
            done.set()

    with flush_in_background(replace(services, meter=Heard(dict)), Thresholds(rows=1), failed):
        assert done.wait(30)
    assert heard == [2]
    assert [thread for thread in threading.enumerate() if thread.name == "flusher"] == []
    assert find_waiting_tables(services) == []
