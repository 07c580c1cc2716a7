"""Postgres fails over under two servers: by the history check, and with the loss that asynchronous replication has."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from random import Random

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType

from duckicelake.lake.ducklake.database import build_attach_source
from duckicelake.storage.registry import open_store
from scripts.history_job import closing
from scripts.history_job.client import ACTIVE, Client, Session, now
from scripts.history_job.history import History, Outcome
from scripts.history_job.native import Native, install, opening
from scripts.history_job.sql_server import SqlProcess
from scripts.history_job.verdict import judge
from scripts.history_job.workload import Worker, create_tables
from tests.ha.pair import Pair, pair_of
from tests.ha.traffic import Traffic
from tests.support.replicas import Cluster, following, lagging, running_cluster, url_of
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


def test_failovers_with_a_synchronous_standby_lose_and_double_nothing(measured):
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
        traffic = Traffic(pair.uri, ["probe"], retries=True)
        traffic.prepare()
        with clients_at_work(pair, session), traffic.running(2):
            wait_until(lambda: session.attempted > total * 0.25, 300)
            fail_over(first, second)
            wait_until(lambda: session.attempted > total * 0.4, 300)
            first.follow(second)
            second.set_synchronous("*")
            wait_until(lambda: session.attempted > total * 0.65, 300)
            fail_over(second, first)
            traffic.wait_for_more(20)
        with closing_client("closing", session) as client:
            measured["settled by their keys"] = closing.settle(session, client)
            measured["acknowledged, sent again"] = closing.repeat(session, client, client.random)
            since = now()
            closing.read_everything(session, client, pair, {})
            traffic.assert_all_is_there(pair.uri)
        closing.read_as_duckdb(session, opening(build_attach_source(pair.database_url), ()))
        session.history.anomalies.extend(closing.readers_disagree(session, since))
        session.history.anomalies.extend(closing.examine(pair))
        store.close()
    measured["seconds without any answer"] = round(traffic.longest_gap(), 1)
    outcomes = [operation.outcome for operation in session.history.operations]
    measured["outcomes"] = {outcome: outcomes.count(outcome) for outcome in Outcome}
    assert outcomes.count(Outcome.ACKNOWLEDGED) > total / 2
    assert judge(session.history) == []


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def read_in_duckdb(pair: Pair, tables: Sequence[str]) -> dict[str, list[int]]:
    process = SqlProcess()
    try:
        process.execute(*opening(build_attach_source(pair.database_url), ()))
        return {
            table: sorted(id_ for (id_,) in process.execute(f"SELECT id FROM lake.main.{table}")) for table in tables
        }
    finally:
        process.close()


def write_in_duckdb(url: str, *statements: str) -> None:
    process = SqlProcess()
    try:
        process.execute(*opening(build_attach_source(url), ()), *statements)
    finally:
        process.close()


def read_by(uri: str, table: str) -> list[int]:
    with RestCatalog("lake", uri=uri) as catalog:
        return sorted(catalog.load_table(("main", table)).scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize("mode", ["client", "ducklake"])
def test_failover_that_loses_commits_leaves_a_whole_lake_of_which_no_cache_serves_another(mode):
    """After it, DuckDB gives the numbers of lost snapshots to other ones, before any server has noticed."""
    install()
    tables = ["inserted", "appended", "posted", "altered"]
    with (
        running_cluster() as primary,
        lagging(primary) as standby,
        pair_of(f"{url_of([primary, standby])}?target_session_attrs=read-write", DUCKICELAKE_SNAPSHOT_IDS=mode) as pair,
    ):
        pair.start()
        first, _ = pair.servers
        with RestCatalog("lake", uri=first.uri) as catalog:
            for table in tables:
                catalog.create_table(("main", table), pa.schema([("id", pa.int64())])).append(rows(1, 2))
            write_in_duckdb(primary.url, "INSERT INTO lake.main.inserted SELECT range FROM range(100, 200)")
            for server in pair.servers:
                for table in tables:
                    read_by(server.uri, table)
            standby.wait_for(primary)
            standby.stop()

            # What is lost
            write_in_duckdb(primary.url, "INSERT INTO lake.main.inserted SELECT range FROM range(1000, 1100)")
            catalog.load_table(("main", "appended")).append(rows(3))
            httpx.post(f"{first.uri}/v1/namespaces/main/tables/posted/rows", json=[{"id": 3}]).raise_for_status()
            with catalog.load_table(("main", "altered")).update_schema() as update:
                update.add_column("lost", StringType())
            catalog.create_table(("main", "gone"), pa.schema([("id", pa.int64())])).append(rows(9))
            stale = {table: catalog.load_table(("main", table)) for table in tables}
            etags = {
                (server.name, table): httpx.get(f"{server.uri}/v1/namespaces/main/tables/{table}").headers["ETag"]
                for server in pair.servers
                for table in [*tables, "gone"]
            }
            primary.stop()
            standby.start()
            standby.promote()

            # What comes instead, in DuckDB
            write_in_duckdb(
                standby.url,
                "INSERT INTO lake.main.inserted SELECT range FROM range(2000, 2100)",
                "INSERT INTO lake.main.appended VALUES (4)",
                "INSERT INTO lake.main.posted VALUES (4)",
                "ALTER TABLE lake.main.altered ADD COLUMN instead VARCHAR",
                "CREATE TABLE lake.main.other (id BIGINT)",
            )
            for server in pair.servers:
                wait_until(server.is_ready)
            found = read_in_duckdb(pair, tables)
            assert found["inserted"] == [1, 2, *range(100, 200), *range(2000, 2100)]
            assert found["appended"] == found["posted"] == [1, 2, 4]
            for server in pair.servers:
                for table in tables:
                    assert read_by(server.uri, table) == found[table], (server.name, table)
                    path = f"{server.uri}/v1/namespaces/main/tables/{table}"
                    answer = httpx.get(path, headers={"If-None-Match": etags[server.name, table]})
                    assert answer.status_code == 200, table
                assert httpx.get(f"{server.uri}/v1/namespaces/main/tables/gone").status_code == 404

            # Clients that go on from a lost version: PyIceberg gives up, or loads again and applies its change to that
            for table in tables[:3]:
                with suppress(CommitFailedException, ValidationException):
                    stale[table].overwrite(rows(5), overwrite_filter=EqualTo("id", 1))
                catalog.load_table(("main", table)).append(rows(6))
            after = read_in_duckdb(pair, tables)
            for table in tables[:3]:
                assert after[table] in (sorted({*found[table], 6}), sorted({*found[table], 5, 6} - {1}))
            for server in pair.servers:
                for table in tables:
                    assert read_by(server.uri, table) == after[table], (server.name, table)
        assert list(closing.examine(pair)) == []
