"""A store that accepts connections and never answers holds no task of another kind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import list_jobs
from duckicelake.delta.import_ import store_rests
from duckicelake.delta.import_.follower import find_asked, find_due
from duckicelake.delta.import_.store_rests import find_rests
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.settings.model import Settings
from duckicelake.storage.protocol import ObjectStore, StoreWrapper
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.upkeep import queue
from duckicelake.upkeep.process import STOP_SECONDS, plan_if_due
from duckicelake.upkeep.sources import SourcePlanner
from duckicelake.upkeep.worker import Worker
from tests.delta.import_.test_follow_tasks import LIMITS, SOON, SOON_SECONDS, find_tasks
from tests.support.followed_table import Following
from tests.support.waits import wait_until

HUNG_SECONDS = 20.0
"""For which one request waits, and does not end a test that must not wait for it."""


@dataclass
class HungServer:
    """A server that accepts connections and never answers."""

    address: str
    connections: list[socket.socket]


@pytest.fixture
def hung_server() -> Iterator[HungServer]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = HungServer(f"http://127.0.0.1:{server.getsockname()[1]}", [])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    found.connections.append(server.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        yield found
        for connection in found.connections:
            connection.close()


class HungStore(StoreWrapper):
    """The lake's store; the Delta table's folder is in one that never answers, while that is so."""

    is_hung = True

    def __init__(self, store: ObjectStore, folder: str, hung: ObjectStore) -> None:
        super().__init__(store)
        self.folder = folder
        self.hung = hung

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def size(self, location: str) -> int:
        if self.is_hung and location.startswith(self.folder):
            return self.hung.size("s3://bucket/version.json")
        return self.store.size(location)


@pytest.fixture
def table(services: Services, ducklake: duckdb.DuckDBPyConnection, hung_server: HungServer) -> Following:
    """A followed table with a new version, whose store hangs since."""
    ducklake.execute("USE lake")
    following = Following(services, ducklake)
    following.append()
    following.begin()
    assert not find_due(services), "its log was listed"
    following.append()
    options = S3Options(hung_server.address, "r", True, "key", "secret", read_timeout=HUNG_SECONDS, max_attempts=1)
    following.services = replace(
        services, store=HungStore(services.store, str(following.root), S3Store("s3://bucket", options))
    )
    return following


def test_look_at_a_hung_store_delays_no_other_task(table: Following) -> None:
    services, errors = table.services, list[Exception]()
    with services.database.transaction() as cursor:
        queue.write_policies(cursor, {AUTOMATIC: "flush", "maintenance.flush.min-rows": "3"})
    table.duck.execute("CREATE TABLE other AS SELECT range AS k FROM range(5)")
    planner = SourcePlanner(Settings(delta_sync_seconds=0.1), errors.append)
    began = time.monotonic()
    for _ in range(5):
        assert plan_if_due(services, planner, 0.001)
    assert Worker(LIMITS).work(services)
    assert time.monotonic() - began < HUNG_SECONDS / 2
    assert {name: task.state for name, task in find_tasks(services).items()} == {"other": "done"}
    wait_until(lambda: planner.plan(services, is_look=False) > 0, seconds=3 * HUNG_SECONDS)
    assert find_tasks(services)["t"].why == "version 1 can not be looked for"
    assert errors == []


def test_table_beside_one_of_a_hung_store_gets_its_versions_in_time(table: Following) -> None:
    other = Following(table.services, table.duck, "beside")
    other.append()
    other.begin()
    services = table.services
    store = services.store
    assert isinstance(store, HungStore)
    store.folder = "s3://elsewhere"
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_delta_source SET root = 's3://elsewhere/t' WHERE root LIKE '%%/t'")
    planner, began = SourcePlanner(SOON), time.monotonic()
    for _ in range(5):
        version = other.append()

        def has_come(version: int = version) -> bool:
            planner.plan(services, is_look=False)
            while Worker(LIMITS).work(services):
                continue
            return other.source().position.version == version

        assert wait_until(has_come) < 3 * SOON_SECONDS
    assert time.monotonic() - began < HUNG_SECONDS, "a look has waited for the store"


def test_request_of_a_user_names_the_store_that_hangs_and_waits_for_it_once(table: Following) -> None:
    other = Following(table.services, table.duck, "beside")
    other.append()
    other.begin()
    other.append()
    services, store = table.services, table.services.store
    assert isinstance(store, HungStore)
    store.folder, away = "s3://elsewhere", "s3://elsewhere/t"
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_delta_source SET root = %s WHERE root LIKE '%%/t'", [away])

    def ask() -> dict[str, str]:
        return {task.table: task.why for task in find_asked(services, lambda *_: True)}

    began = time.monotonic()
    assert ask() == {"t": f"the store of {away} did not answer in time", "beside": "version 1 is there"}
    assert ask() == {"t": f"another request waits for the store of {away}", "beside": "version 1 is there"}
    assert time.monotonic() - began < HUNG_SECONDS / 2


def test_request_that_hangs_does_not_keep_tables_from_a_store_that_answers_again(
    table: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_rests, "_FIRST_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(store_rests, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(store_rests, "_MIN_REST_SECONDS", 2.0)
    services, root = table.services, table.source().root
    store, rests = services.store, find_rests(table.services.database)
    assert isinstance(store, HungStore)
    planner, began = SourcePlanner(SOON), time.monotonic()
    wait_until(lambda: planner.plan(services, is_look=False) == 1)
    assert find_tasks(services)["t"].why == "version 1 can not be looked for"
    wait_until(lambda: rests.find(root) is None)
    store.is_hung = False
    time.sleep(2 * SOON_SECONDS)
    planner.plan(services, is_look=False)
    assert rests.find(root) is None, "a look that hangs lets the store rest once"
    try_again(services)
    assert table.source().position.version == 1
    table.append()
    wait_until(lambda: planner.plan(services, is_look=False) == 1)
    assert find_tasks(services)["t"].why == "version 2 is there"
    assert time.monotonic() - began < HUNG_SECONDS, "the first request has ended"


@pytest.fixture
def queued(table: Following) -> Following:
    """A table with a task; its store answers until that runs."""
    store = table.services.store
    assert isinstance(store, HungStore)
    store.is_hung = False
    assert SourcePlanner(SOON).plan(table.services, is_look=True) == 1
    store.is_hung = True
    return table


def try_again(services: Services) -> None:
    """Do the task, although it waits for another attempt."""
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_upkeep_task SET available = clock_timestamp()")
    assert Worker(LIMITS).work(services)


def test_task_of_a_hung_store_ends_soon_and_the_store_rests(queued: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_rests, "_FIRST_ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(store_rests, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(store_rests, "_MIN_REST_SECONDS", 2.0)
    services, root = queued.services, queued.source().root
    rests, began = find_rests(services.database), time.monotonic()
    assert Worker(LIMITS).work(services)
    assert time.monotonic() - began < HUNG_SECONDS / 2
    task = find_tasks(services)["t"]
    assert (task.state, task.attempts, queued.source().error) == ("waiting", 0, None), "it may have been slow"
    assert f"{root} did not answer within 2 seconds; its store is left alone" in str(task.message)
    first = rests.find(root)
    assert first is not None, "it is asked no more for a while"
    wait_until(lambda: rests.find(root) is None)
    try_again(services)
    task = find_tasks(services)["t"]
    assert (task.state, task.attempts) == ("waiting", 1)
    assert "did not answer within 1 second" in str(queued.source().error)
    second = rests.find(root)
    assert second is not None
    assert second.ends_at - first.ends_at > 3.5, "it rests for longer each time"
    store = services.store
    assert isinstance(store, HungStore)
    store.is_hung = False
    wait_until(lambda: rests.find(root) is None)
    try_again(services)
    assert (find_tasks(services)["t"].state, queued.source().error) == ("done", None)


class SlowStore(StoreWrapper):
    """A store that answers well, after some seconds."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        super().__init__(store)
        self.seconds = seconds

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    def size(self, location: str) -> int:
        time.sleep(self.seconds)
        return self.store.size(location)


def make_slow(table: Following, seconds: float) -> Services:
    store = table.services.store
    assert isinstance(store, HungStore)
    return replace(table.services, store=SlowStore(store.store, seconds))


def test_store_that_answers_slowly_is_waited_for(queued: Following) -> None:
    services = make_slow(queued, 3.5)
    assert Worker(LIMITS).work(services)
    assert find_tasks(services)["t"].state == "done"
    assert [str(job.result) for job in list_jobs(services, PageRequest(), kind="follow-delta").items] == ["done"]


def test_late_answer_ends_the_rest(queued: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_rests, "_FIRST_ANSWER_SECONDS", 0.2)
    services, root = make_slow(queued, 1.0), queued.source().root
    rests = find_rests(services.database)
    assert Worker(LIMITS).work(services)
    assert rests.find(root) is not None
    assert wait_until(lambda: rests.find(root) is None) < store_rests._MIN_REST_SECONDS - 1
    monkeypatch.undo()
    try_again(services)
    assert (find_tasks(services)["t"].state, queued.source().error) == ("done", None)


@pytest.mark.crash
def test_worker_ends_at_once_while_looks_at_a_hung_store_go_on(
    services: Services,
    ducklake: duckdb.DuckDBPyConnection,
    hung_server: HungServer,
    database_url: str,
    warehouse: Path,
) -> None:
    ducklake.execute("USE lake")
    for name in ("first", "second", "third"):
        following = Following(services, ducklake, name)
        following.append()
        following.begin()
    assert not find_due(services), "their logs were listed"
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_delta_source SET root = 's3://elsewhere/' || table_id")
    settings = {
        "WAREHOUSE": str(warehouse),
        "DATABASE_URL": database_url,
        "ALLOWED_LOCATIONS": "s3://elsewhere",
        "S3_ENDPOINT": hung_server.address,
        "S3_REGION": "r",
        "S3_ACCESS_KEY_ID": "key",
        "S3_SECRET_ACCESS_KEY": "secret",
        "DELTA_SYNC_SECONDS": "0.1",
    }
    environment = {**os.environ, **{f"DUCKICELAKE_{name}": value for name, value in settings.items()}}
    with subprocess.Popen([Path(sys.executable).with_name("duckicelake"), "work"], env=environment) as worker:
        try:
            wait_until(lambda: len(hung_server.connections) >= 3)
            time.sleep(0.5)
            began = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(60) == 0
            assert time.monotonic() - began < STOP_SECONDS + 3
        finally:
            worker.kill()
