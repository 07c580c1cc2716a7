"""A Postgres whose processes are stopped: it takes what it is sent and answers nothing, and is given up."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from duckicelake.errors import CommitStateUnknownError, UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import flush_pipeline
from tests.support.replicas import running_cluster

pytestmark = pytest.mark.crash

SECONDS = 0.5
MOST = 4.0
"""Seconds within which all is given up: the statement's, and what Postgres has to say so itself."""


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def database(cluster):
    with closing(open_lake_database(cluster.url, pool_size=4, statement_seconds=SECONDS, pool_seconds=1)) as database:
        with database.transaction() as cursor:
            cursor.execute("DROP TABLE IF EXISTS numbers")
            cursor.execute("CREATE TABLE numbers (n integer)")
        yield database


def insert(cursor):
    cursor.execute("INSERT INTO numbers SELECT generate_series(1, 10)")


def copy(cursor):
    with cursor.copy("COPY numbers FROM STDIN") as rows:
        for _ in range(100_000):
            rows.write("1\n" * 100)


def read(cursor):
    return cursor.execute("SELECT count(*) FROM numbers").fetchall()


def pipelined(database):
    return database.transaction(pipelined=True)


def run(database, opened, act):
    with opened(database) as cursor:
        act(cursor)
        if opened is pipelined:
            read(cursor)


def count(database, query="SELECT count(*) FROM numbers"):
    """What a query finds once the database answers again."""
    until = time.monotonic() + 20
    while True:
        try:
            with database.reading() as cursor:
                return cursor.execute(query).fetchall()[0][0]
        except UnavailableError:
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.parametrize("act", [insert, copy, read])
@pytest.mark.parametrize("opened", [Database.transaction, pipelined, Database.statement, Database.reading])
def test_what_gets_no_answer_is_unavailable_in_time_and_what_follows_works(cluster, database, opened, act):
    if opened is Database.reading and act is not read:
        pytest.skip("reading takes no writes")

    with cluster.stopped():
        began = time.monotonic()
        with pytest.raises(UnavailableError, match="does not answer; nothing was written"):
            run(database, opened, act)
        assert time.monotonic() - began < MOST

    assert count(database) == 0 or (opened is Database.statement and act is insert)  # which commits by itself


@pytest.mark.parametrize("opened", [Database.transaction, pipelined])
def test_commit_that_gets_no_answer_may_have_happened_and_says_so(cluster, database, opened):
    with ThreadPoolExecutor(1) as beside:

        def commit():
            with opened(database) as cursor:
                insert(cursor)
                flush_pipeline(cursor)
                read(cursor)
                stopped.__enter__()

        stopped = cluster.stopped()
        try:
            began = time.monotonic()
            with pytest.raises(CommitStateUnknownError):
                beside.submit(commit).result()
            assert time.monotonic() - began < MOST
        finally:
            stopped.__exit__(None, None, None)

    assert count(database) in (0, 10)


def test_new_connections_are_given_up_too_and_more_who_wait_for_one(cluster):
    with closing(open_lake_database(f"{cluster.url}?connect_timeout=2", 2, SECONDS, 0.5)) as database:
        with cluster.stopped():
            began = time.monotonic()
            with ThreadPoolExecutor(6) as many:
                failed = list(many.map(lambda _: unavailable(database), range(6)))
            assert failed == [True] * 6
            with pytest.raises(UnavailableError):
                database.check()
            assert time.monotonic() - began < 2 * MOST

        assert count(database, "SELECT 1") == 1


def unavailable(database):
    try:
        with database.statement() as cursor:
            cursor.execute("SELECT 1")
    except UnavailableError:
        return True
    return False


def test_listener_is_given_up_too(cluster, database):
    notices = database.open_listener("news")

    def listen():
        with notices.connect() as cursor, cluster.stopped():
            read(cursor)

    with pytest.raises(UnavailableError):
        listen()
    notices.release()
