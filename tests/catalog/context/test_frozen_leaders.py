"""A server that leads a task is frozen: another takes over, and nothing is done twice once the first wakes."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable

from duckicelake.catalog.context.background_threads import LOOK
from duckicelake.catalog.context.meter import NO_METER
from duckicelake.catalog.context.services import Services
from duckicelake.changelog.entries import START_POSITION, WantedChanges, read_changes
from duckicelake.changelog.writer import follow_in_background
from duckicelake.delta.export.keeper import keep_delta_logs_in_background
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.delivery import outbox
from duckicelake.lineage.delivery.couriers import DeliveryLimits, deliver_in_background
from duckicelake.lineage.delivery.deliverer import DeliveryObserver
from duckicelake.lineage.delivery.receivers import parse_receivers
from duckicelake.lineage.delivery.transports import open_outlet
from duckicelake.lineage.graph.store import record_events
from tests.conftest import services_of
from tests.delta.export.readers import delta_rs
from tests.support.lakes import Lake
from tests.support.lineage_events import event, table
from tests.support.receiver import Receiver, receiving
from tests.support.waits import wait_until

STATEMENT_SECONDS = 2.0
TAKE_OVER_SECONDS = 2 * STATEMENT_SECONDS + LOOK + 30
"""Within which another has the lead, on a busy machine; without a limit a frozen server would have it for ever."""
ROWS = 30
"""More than DuckDB inlines."""
NOTICES = 2_000
"""More than fit into the buffers of a local socket, whose other end doesn't read."""
Failed = Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the work comes from and goes to."""

    lake: Lake
    receiver: Receiver

    @property
    def log(self) -> Path:
        return Path(self.lake.metadata("logged").location.removeprefix("file:"))


def write_changelog(services: Services, failed: Failed, _uri: str) -> AbstractContextManager[None]:
    return follow_in_background(services, failed)


def keep_delta_logs(services: Services, failed: Failed, _uri: str) -> AbstractContextManager[None]:
    return keep_delta_logs_in_background(services, failed, lambda _, error: failed(error))


def deliver(services: Services, failed: Failed, uri: str) -> AbstractContextManager[None]:
    outlets = [open_outlet(receiver) for receiver in parse_receivers([uri])]
    listener = DeliveryObserver(NO_METER, lambda text, **facts: failed((text, facts)))
    return deliver_in_background(services, outlets, DeliveryLimits(1000, 0.0), listener)


@dataclass(frozen=True, slots=True)
class Leader:
    """run: the task, in the background. change: makes the n-th piece of work. done: how often each piece was done."""

    run: Callable[[Services, Failed, str], AbstractContextManager[None]]
    change: Callable[[Place, int], None]
    done: Callable[[Place], Counter[int]]


@contextmanager
def serving(name: str, url: str, warehouse: str, uri: str, failed: Failed) -> Iterator[None]:
    """Run a task, beside the changelog's that each server runs."""
    with closing(open_lake_database(url, 4, STATEMENT_SECONDS)) as database:
        services = services_of(database, Path(warehouse))
        changelog = nullcontext() if name == "changelog" else follow_in_background(services, failed)
        with changelog, LEADERS[name].run(services, failed, uri):
            yield


def create_table(place: Place, number: int) -> None:
    place.lake.run(f"CREATE TABLE n{number} (i INT)")


def list_created(place: Place) -> Counter[int]:
    with place.lake.services.database.reading() as cursor:
        changes = read_changes(cursor, START_POSITION, 1000, WantedChanges())
    return Counter(int(change.name[1:]) for change in changes if change.name and change.name[1:].isdigit())


def insert_row(place: Place, number: int) -> None:
    place.lake.run(f"INSERT INTO logged SELECT {number} FROM range({ROWS})")


def list_logged(place: Place) -> Counter[int]:
    if not any((place.log / "_delta_log").glob("*.json")):
        return Counter()
    rows = Counter(row["a"] for row in delta_rs(str(place.log), DeltaTable(place.log).version()).to_pylist())
    return Counter({number: count // ROWS for number, count in rows.items()})


def record_event(place: Place, number: int) -> None:
    with place.lake.services.database.transaction() as cursor:
        record_events(cursor, [event(number, outputs=(table(str(number)),))], origin="catalog")


def list_delivered(place: Place) -> Counter[int]:
    """Count what was received; none is done until the outbox knows, as a server frozen before that delivers twice."""
    with place.lake.services.database.reading() as cursor:
        state = outbox.read_outbox(cursor, parse_receivers([place.receiver.uri])[0].name)
    return Counter(place.receiver.numbers()) if state.position == state.newest else Counter()


LEADERS = {
    "changelog": Leader(write_changelog, create_table, list_created),
    "Delta logs": Leader(keep_delta_logs, insert_row, list_logged),
    "lineage": Leader(deliver, record_event, list_delivered),
}


@pytest.fixture
def place(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Iterator[Place]:
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE logged (a INTEGER)")
    lake.metadata("logged")
    lake.commit({"action": "set-properties", "updates": {"delta.enabled": "true"}}, table="logged")
    with receiving() as receiver:
        outbox.register_receivers(services.database, [each.name for each in parse_receivers([receiver.uri])])
        yield Place(lake, receiver)


@pytest.mark.parametrize("name", LEADERS)
def test_lead_of_a_frozen_server_passes_on(place: Place, database_url: str, name: str) -> None:
    leader, services = LEADERS[name], place.lake.services
    failures: list[object] = []

    def do(number: int, seconds: float = 60) -> None:
        leader.change(place, number)
        wait_until(lambda: number in leader.done(place), seconds)

    with running_elsewhere(name, database_url, services.policy.warehouse, place.receiver.uri) as process:
        do(1)
        os.kill(process, signal.SIGSTOP)
        flood(database_url)
        with serving(name, database_url, services.policy.warehouse, place.receiver.uri, failures.append):
            do(2, TAKE_OVER_SECONDS)
            os.kill(process, signal.SIGCONT)
            for number in range(3, 10):
                do(number)
        do(10)  # by the first again
    done = leader.done(place)
    assert [done[number] for number in range(1, 11)] == [1] * 10
    assert failures == []


def flood(url: str) -> None:
    """Notify whoever listens of more than a socket's buffers hold."""
    with psycopg.connect(url, autocommit=True) as connection:
        for channel in ("duckicelake_snapshot", "duckicelake_lineage"):
            for number in range(NOTICES):
                connection.execute("SELECT pg_notify(%s, %s)", (channel, str(number)))


@contextmanager
def running_elsewhere(name: str, url: str, warehouse: str, uri: str) -> Iterator[int]:
    """Run a task in a process of its own; the process id."""
    processes = multiprocessing.get_context("spawn")
    process = processes.Process(target=_run, args=(name, url, warehouse, uri))
    process.start()
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.kill()
        process.join()


def _run(name: str, url: str, warehouse: str, uri: str) -> None:
    with serving(name, url, warehouse, uri, print):
        Event().wait()
