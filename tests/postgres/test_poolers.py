"""Poolers between the server and Postgres: one that shares sessions between transactions is refused."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import psycopg
import pytest

from duckicelake.errors import UnsupportedCatalogError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.session import check_sessions
from scripts.backends_job.processes import free_port
from tests.support.replicas import Cluster, running_cluster

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as cluster:
        yield cluster


@contextmanager
def pooled(cluster: Cluster, mode: str) -> Iterator[str]:
    """The URL of a pgbouncer before the cluster."""
    port, folder = free_port(), cluster.folder
    config = folder / f"{mode}.ini"
    config.write_text(
        f"[databases]\n* = host=127.0.0.1 port={cluster.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\nlogfile = {folder}/{mode}.log\n"
        "ignore_startup_parameters = extra_float_digits\n"
        f"[databases]\npostgres = host=127.0.0.1 port={cluster.port} user=postgres\n"
    )
    identity = {"user": cluster.user.uid, "group": cluster.user.gid, "extra_groups": []} if cluster.user else {}
    process = subprocess.Popen([str(PROGRAM), "-q", str(config)], cwd=folder, **identity)
    try:
        until = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.02)
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.ha
@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer isn't installed: apt-get install pgbouncer")
@pytest.mark.parametrize("mode", ["transaction", "statement", "session"])
def test_pgbouncer_is_refused_unless_it_keeps_sessions(cluster, mode):
    with pooled(cluster, mode) as url, closing(open_lake_database(url, 2)) as database:
        if mode == "session":
            database.check_sessions()
        else:
            with pytest.raises(UnsupportedCatalogError, match="pool_mode = session"):
                database.check_sessions()


def test_postgres_itself_is_taken_with_one_connection(cluster):
    opened = []

    def connect():
        opened.append(psycopg.connect(cluster.url, autocommit=True))
        return opened[-1]

    check_sessions(connect)

    assert len(opened) == 1


class Pooled:
    """A connection through a pooler that gives each transaction the session that was given back last."""

    def __init__(self, sessions):
        self.info = SimpleNamespace(backend_pid=0)
        self._sessions = sessions
        self._own = None

    def execute(self, statement):
        if self._own is not None:
            return self._own.execute(statement)
        session = self._sessions.pop()
        try:
            return session.execute(statement)
        finally:
            self._sessions.append(session)

    @contextmanager
    def transaction(self):
        self._own = self._sessions.pop()
        try:
            yield
        finally:
            self._sessions.append(self._own)
            self._own = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def test_pooler_that_shares_two_sessions_is_refused(cluster):
    with psycopg.connect(cluster.url, autocommit=True) as one, psycopg.connect(cluster.url, autocommit=True) as other:
        sessions = [one, other]
        with pytest.raises(UnsupportedCatalogError, match="shares sessions"):
            check_sessions(lambda: Pooled(sessions))


def test_pooler_that_keeps_sessions_is_taken(cluster):
    with psycopg.connect(cluster.url, autocommit=True) as one, psycopg.connect(cluster.url, autocommit=True) as other:
        each = iter([one, other])
        check_sessions(lambda: Pooled([next(each)]))
