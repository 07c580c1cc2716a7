"""DuckDB 2.0 migrates a lake that is being served, loaded, or whose server restarts: no acknowledged row is lost."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from time import monotonic, sleep

import httpx
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, ServiceUnavailableError

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import build_session_settings, prepare_catalog, require_known
from duckicelake.server.app import create_app
from tests.support.ducklake_11 import NEW_NAMES, migrate
from tests.support.lakes import Lake, iceberg_rows
from tests.support.servers import running

SECONDS = 2.0


def migrate_with_retries(url: str) -> None:
    """Migrate as an operator does who begins again after a deadlock."""
    for _ in range(20):
        try:
            return migrate(url, is_guarded=False)
        except psycopg.errors.DeadlockDetected:
            sleep(0.1)
    raise AssertionError("the migration lost twenty times")


@contextmanager
def in_threads(*works: Callable[[Callable[[], bool]], list[int]]) -> Iterator[list[int]]:
    """Do the works until the block has ended, then for as long again; the ids that were acknowledged."""
    stop = threading.Event()
    acknowledged: list[int] = []
    with ThreadPoolExecutor(len(works)) as pool:
        jobs = [pool.submit(work, stop.is_set) for work in works]
        sleep(SECONDS)
        yield acknowledged
        sleep(SECONDS)
        stop.set()
        for job in jobs:
            acknowledged += job.result()


def post_rows(uri: str, first: int) -> Callable[[Callable[[], bool]], list[int]]:
    """Post rows one by one, each again after a 503; every tenth request makes files."""

    def work(is_over: Callable[[], bool]) -> list[int]:
        sent: list[int] = []
        with httpx.Client(base_url=uri, timeout=30) as http:
            while not is_over():
                start = first + len(sent)
                ids = list(range(start, start + (20 if len(sent) % 10 == 0 else 1)))
                answer = http.post("/v1/namespaces/main/tables/t/rows", json=[{"i": id_, "s": "p"} for id_ in ids])
                assert answer.status_code in {200, 503}, answer.text
                if answer.status_code == 200:
                    sent += ids
                else:
                    assert int(answer.headers["Retry-After"]) > 0
                    sleep(0.05)
        return sent

    return work


def append(uri: str, first: int) -> Callable[[Callable[[], bool]], list[int]]:
    """Append by PyIceberg, each row again after a 503, or after a conflict with rows that were posted meanwhile."""

    def work(is_over: Callable[[], bool]) -> list[int]:
        sent: list[int] = []
        with RestCatalog(f"lake{first}", uri=uri) as catalog:
            while not is_over():
                rows = pa.table({"i": pa.array([first + len(sent)], pa.int64()), "s": ["a"]})
                with suppress(CommitFailedException, ServiceUnavailableError):
                    catalog.load_table("main.t").append(rows)
                    sent.append(first + len(sent))
        return sent

    return work


@pytest.fixture
def served(lake: Lake) -> Lake:
    lake.run("CREATE TABLE t (i BIGINT, s VARCHAR)", "INSERT INTO t VALUES (-1, 'first')")
    return lake


def new_names(lake: Lake) -> bool:
    """Whether all tables of inlined rows have the names of 1.1."""
    found = lake.sql("SELECT duckicelake_system_columns(table_name) FROM ducklake_inlined_data_tables")
    return {tuple(names) for (names,) in found} == {NEW_NAMES}


def test_writers_go_on_while_the_lake_is_migrated(served, database_url):
    with running(create_app(served.services)) as uri:
        works = (post_rows(uri, 0), post_rows(uri, 100_000), append(uri, 200_000))
        with in_threads(*works) as acknowledged:
            migrate_with_retries(database_url)

    assert len(acknowledged) > len(works)
    assert [row[0] for row in sorted(iceberg_rows(served.static("t")))] == sorted([-1, *acknowledged])
    assert new_names(served)


@pytest.mark.commands
def test_a_server_that_starts_during_the_migration_serves_the_lake_as_it_is(served, database_url):
    started: list[float] = []

    def restart(is_over: Callable[[], bool]) -> list[int]:
        while not is_over():
            database = open_lake_database(database_url, pool_size=2, session_settings=build_session_settings())
            try:
                prepare_catalog(database, "/ignored/", creates=False)
                require_known(database)
                with database.reading() as cursor:
                    assert cursor.execute("SELECT count(*) FROM ducklake_table").fetchall() == [(1,)]
                started.append(monotonic())
            finally:
                database.close()
        return []

    with running(create_app(served.services)) as uri, in_threads(restart, post_rows(uri, 0)) as acknowledged:
        migrate_with_retries(database_url)
        migrated = monotonic()

    assert min(started) < migrated < max(started)
    assert [row[0] for row in sorted(iceberg_rows(served.static("t")))] == sorted([-1, *acknowledged])
    assert new_names(served)
