"""Postgres fails over under two servers: by the history check, and with the loss that asynchronous replication has."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random

import pytest

from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.storage.registry import open_store
from scripts.history_job import closing
from scripts.history_job.client import ACTIVE, Client, Session, now
from scripts.history_job.history import History, Outcome
from scripts.history_job.native import Native, install, opening
from scripts.history_job.verdict import judge
from scripts.history_job.workload import Worker, create_tables
from tests.ha.pair import Pair, pair_of
from tests.support.replicas import Cluster, following, running_cluster, url_of
from tests.support.waits import wait_until

pytestmark = [pytest.mark.ha, pytest.mark.timeout(900)]
CLIENTS = 6
OPERATIONS = 50
SEED = 37


@contextmanager
def closing_client(name: str, session: Session) -> Iterator[Client]:
    client = Client(name, session, Random(f"{SEED}/{name}"))
    yield client
    client.close()


@contextmanager
def clients_at_work(pair: Pair, session: Session) -> Iterator[None]:
    """Let clients, and a DuckDB beside them, do all their operations; the block runs meanwhile."""
    ended = threading.Event()
    with closing_client("setup", session) as setup:
        create_tables(setup)
    native = Native(session, opening(build_attach_source(pair.database_url), ()), Random(f"{SEED}/native"), ended)
    duckdb = threading.Thread(target=native.run, name="duckdb")

    def work(number: int) -> None:
        with closing_client(f"c{number}", session) as client:
            worker = Worker(client)
            for _ in range(OPERATIONS):
                worker.step()

    duckdb.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            done = pool.map(work, range(CLIENTS))
            yield
            list(done)
    finally:
        ended.set()
        duckdb.join()


def fail_over(primary: Cluster, standby: Cluster) -> None:
    """Take the primary away as a power loss does, and promote the standby, for whose own standby no commit waits."""
    primary.stop()
    standby.promote()


def test_failovers_with_a_synchronous_standby_lose_and_double_nothing(record_property):
    install()
    total = CLIENTS * OPERATIONS
    with (
        running_cluster() as first,
        following(first) as second,
        pair_of(f"{url_of([first, second])}?target_session_attrs=read-write", DUCKICELAKE_WORKERS="2") as pair,
    ):
        pair.start()
        store = open_store(pair.settings["DUCKICELAKE_WAREHOUSE"])
        tables = [f"t{number}" for number in range(ACTIVE)]
        session = Session(pair.uri, History(), store, tables, ["k0", "k1"], total)
        with clients_at_work(pair, session):
            wait_until(lambda: session.attempted > total * 0.25, 300)
            fail_over(first, second)
            wait_until(lambda: session.attempted > total * 0.4, 300)
            first.follow(second)
            second.set_synchronous("*")
            wait_until(lambda: session.attempted > total * 0.65, 300)
            fail_over(second, first)
        with closing_client("closing", session) as client:
            record_property("settled by their keys", closing.settle(session, client))
            record_property("acknowledged, sent again", closing.repeat(session, client, client.random))
            since = now()
            closing.read_everything(session, client, pair, {})
        closing.read_as_duckdb(session, opening(build_attach_source(pair.database_url), ()))
        session.history.anomalies.extend(closing.readers_disagree(session, since))
        session.history.anomalies.extend(closing.examine(pair))
        store.close()
    outcomes = [operation.outcome for operation in session.history.operations]
    record_property("outcomes", {outcome: outcomes.count(outcome) for outcome in Outcome})
    assert outcomes.count(Outcome.ACKNOWLEDGED) > total / 2
    assert judge(session.history) == []
