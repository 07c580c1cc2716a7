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

from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.follower import find_due, find_rests
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.settings.model import Settings
from duckicelake.storage.protocol import ObjectStore, StoreWrapper
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.upkeep import queue
from duckicelake.upkeep.process import STOP_SECONDS, plan_if_due
from duckicelake.upkeep.sources import SourcePlanner
from duckicelake.upkeep.worker import Worker
from tests.delta.import_.test_follow_tasks import LIMITS, SOON, find_tasks
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


def test_task_of_a_hung_store_ends_soon_and_the_store_rests(table: Following) -> None:
    services = table.services
    store = services.store
    assert isinstance(store, HungStore)
    store.is_hung = False
    assert SourcePlanner(SOON).plan(services, is_look=True) == 1
    store.is_hung = True
    began = time.monotonic()
    assert Worker(LIMITS).work(services)
    assert time.monotonic() - began < HUNG_SECONDS / 2
    task = find_tasks(services)["t"]
    assert (task.state, "did not answer within 3 seconds" in str(task.message)) == ("waiting", True)
    assert "did not answer" in str(table.source().error)
    cause = find_rests(services.database).find(table.source().root)
    assert cause is not None, "it is asked no more for a while"
    find_rests(services.database).end(table.source().root)
    store.is_hung = False
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_upkeep_task SET available = clock_timestamp()")
    assert Worker(LIMITS).work(services)
    assert (find_tasks(services)["t"].state, table.source().error) == ("done", None)


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
