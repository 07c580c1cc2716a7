"""Postgres hangs, dies or takes no writes, or a terminal closes: the server says so, and goes on or ends in time."""

import fcntl
import os
import pty
import random
import resource
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.cli.test_commands import (
    COMMAND,
    children,
    environment,
    lake,
    postgres_pid,
    serving,
    wait_until_ended,
    worker_pids,
)
from tests.support.clusters import place_cluster
from tests.support.replicas import Cluster, running_cluster, stop_family

pytestmark = pytest.mark.crash

__all__ = ["lake"]
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
TABLE = "/v1/namespaces/main/tables/t"
SHUTDOWN_SECONDS = 3
MOST = 15.0
"""Seconds within which each request is answered, on a busy machine."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def settings(cluster: Cluster, lake: Path) -> dict[str, str]:
    name = f"lake_{time.time_ns()}"
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return {
        "DUCKICELAKE_DATABASE_URL": f"{cluster.url.removesuffix('/postgres')}/{name}",
        "DUCKICELAKE_WAREHOUSE": str(lake.parent / "warehouse"),
        "DUCKICELAKE_POOL_SECONDS": "1",
        "DUCKICELAKE_STATEMENT_SECONDS": "1",
        "DUCKICELAKE_SHUTDOWN_SECONDS": str(SHUTDOWN_SECONDS),
        "DUCKICELAKE_LINEAGE_FLUSH_SECONDS": "0",
    }


def commit(client: httpx.Client) -> httpx.Response:
    return client.post(
        TABLE, json={"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "b"}}]}
    )


def load(client: httpx.Client) -> httpx.Response:
    return client.get(TABLE)


def make(client: httpx.Client) -> httpx.Response:
    return client.post("/v1/namespaces", json={"namespace": [f"n{time.time_ns()}"]})


def post_rows(client: httpx.Client) -> httpx.Response:
    return client.post(f"{TABLE}/rows", json=[{"id": 1}])


WRITES = (commit, make, post_rows)


def has_another_postgres(lake: Path, before: int) -> bool:
    """Whether a Postgres runs that isn't the one before; between two there is no file that names one."""
    try:
        return postgres_pid(lake) != before
    except FileNotFoundError:
        return False


def error_of(answer: httpx.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["error"]
    return found


@pytest.mark.crash
@pytest.mark.parametrize("workers", ["1", "2"])
def test_hung_postgres_is_given_up_comes_back_and_keeps_no_server_from_ending(
    cluster: Cluster, settings: dict[str, str], lake: Path, workers: str
) -> None:
    with (
        serving(lake, "--create", "--workers", workers, **settings) as served,
        httpx.Client(base_url=served.uri, timeout=60) as client,
        ThreadPoolExecutor(12) as many,
    ):
        table = client.post("/v1/namespaces/main/tables", json={"name": "t", "schema": SCHEMA})
        assert table.is_success, table.text
        assert post_rows(client).is_success
        with cluster.stopped():
            began = time.monotonic()
            answers = list(many.map(lambda act: act(client), [load, *WRITES] * 3))
            assert time.monotonic() - began < MOST
            assert {answer.status_code for answer in answers} == {503}, [answer.text for answer in answers]
            assert client.get("/healthz").status_code == 200
            assert client.get("/readyz").status_code == 503
        until = time.monotonic() + MOST
        while not all(act(client).is_success for act in (load, *WRITES)):
            assert time.monotonic() < until
        with cluster.stopped():
            began = time.monotonic()
            under_way = many.submit(commit, client)
            time.sleep(0.3)
            served.process.send_signal(signal.SIGTERM)
            served.process.wait(60)
            assert time.monotonic() - began < SHUTDOWN_SECONDS + 10
            assert under_way.exception() is not None or under_way.result().status_code == 503


def test_postgres_that_is_set_to_take_no_writes_has_all_writes_answered_alike(
    cluster: Cluster, settings: dict[str, str], lake: Path
) -> None:
    name = settings["DUCKICELAKE_DATABASE_URL"].rpartition("/")[2]
    with (
        serving(lake, "--create", **settings) as served,
        httpx.Client(base_url=served.uri, timeout=60) as client,
        psycopg.connect(cluster.url, autocommit=True) as admin,
    ):
        client.post("/v1/namespaces/main/tables", json={"name": "t", "schema": SCHEMA})
        assert post_rows(client).is_success
        before = load(client).json()["metadata"]
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
        for write in WRITES:
            answer = write(client)
            assert answer.status_code == 503, answer.text
            assert "default_transaction_read_only is on" in error_of(answer)["message"]
            assert answer.headers["Retry-After"]
        assert load(client).json()["metadata"] == before
        admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off".encode())
        admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
        for write in WRITES:
            answer = write(client)
            assert answer.is_success, answer.text


BACKENDS = (
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
    "AND pid <> pg_backend_pid() ORDER BY state = 'active' DESC, random()"
)


def terminate_sessions(cluster: Cluster, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        pids = [pid for (pid,) in connection.execute(BACKENDS)]
        for pid in random.choice([pids[:1], pids]):
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])


def kill_session(cluster: Cluster, url: str) -> None:
    """Postgres ends all others then, too, and recovers."""
    with psycopg.connect(url, autocommit=True) as connection:
        for (pid,) in connection.execute(BACKENDS).fetchall()[:1]:
            os.kill(pid, signal.SIGKILL)
    time.sleep(1)


def crash(cluster: Cluster, url: str) -> None:
    cluster.stop()
    time.sleep(0.3)
    cluster.start()
    time.sleep(1)


READS = ("", "/main", "/main/tables", "/main/views", "/main/tables/t", "/main/tables/t?snapshots=refs", "/main/views/v")
VIEW = {
    "name": "v",
    "schema": SCHEMA,
    "properties": {},
    "view-version": {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT * FROM t", "dialect": "duckdb"}],
        "default-namespace": ["main"],
    },
}


@pytest.mark.parametrize(
    "fail",
    [
        terminate_sessions,
        pytest.param(kill_session, marks=pytest.mark.crash),
        pytest.param(crash, marks=pytest.mark.crash),
    ],
)
def test_reads_amid_failures_of_postgres_succeed_or_are_to_be_tried_again(
    cluster: Cluster, settings: dict[str, str], lake: Path, fail: Callable[[Cluster, str], None]
) -> None:
    answers: list[httpx.Response] = []
    is_over = threading.Event()
    with (
        serving(lake, "--create", **settings) as served,
        httpx.Client(base_url=served.uri, timeout=60) as client,
        ThreadPoolExecutor(6) as many,
    ):
        assert client.post("/v1/namespaces/main/tables", json={"name": "t", "schema": SCHEMA}).is_success
        assert client.post("/v1/namespaces/main/views", json=VIEW).is_success

        def read(number: int) -> None:
            while not is_over.is_set():
                path = READS[number % len(READS)] if random.random() < 0.3 else "/main/tables/t"
                method = "HEAD" if random.random() < 0.2 and "/t" in path[6:] else "GET"
                answers.append(client.request(method, f"/v1/namespaces{path}"))
                number += 1

        def write() -> None:
            """Let each load find rows that it must write as Parquet."""
            while not is_over.is_set():
                post_rows(client)

        work = [many.submit(write), *(many.submit(read, number) for number in range(5))]
        until = time.monotonic() + 5
        while time.monotonic() < until:
            fail(cluster, settings["DUCKICELAKE_DATABASE_URL"])
            time.sleep(0.2 * random.random())
        is_over.set()
        for part in work:
            part.result()
        statuses = {answer.status_code for answer in answers}
        assert 503 in statuses
        assert statuses <= {200, 204, 503}, {answer.text for answer in answers if answer.status_code >= 500}
        until = time.monotonic() + MOST
        while not load(client).is_success:
            assert time.monotonic() < until


@pytest.mark.crash
def test_full_disk_of_a_new_worker_makes_loads_unavailable(lake: Path) -> None:
    """The worker has made no temporary file yet, nor looked for the folder."""
    with (
        serving(lake, "--workers", "2") as served,
        httpx.Client(base_url=served.uri, timeout=60) as client,
    ):
        assert client.post("/v1/namespaces/main/tables", json={"name": "t", "schema": SCHEMA}).is_success
        assert post_rows(client).is_success
        workers = worker_pids(served.process.pid)
        for pid in workers:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        answers = [httpx.get(served.uri + TABLE, timeout=60) for _ in range(6)]
        assert {answer.status_code for answer in answers} == {503}, [answer.text for answer in answers]
        for pid in workers:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert load(client).is_success


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.crash)])
def test_embedded_postgres_that_was_killed_is_started_again_and_no_row_is_lost(lake: Path, workers: str) -> None:
    with (
        serving(lake, "--workers", workers, DUCKICELAKE_POOL_SECONDS="1") as served,
        httpx.Client(base_url=served.uri, timeout=60) as client,
    ):
        made = client.post("/v1/namespaces/main/tables", json={"name": "t", "schema": SCHEMA})
        assert made.is_success, made.text
        for _ in range(2):
            before = postgres_pid(lake)
            assert commit(client).is_success
            os.kill(before, signal.SIGKILL)
            until = time.monotonic() + 60
            while not ((answer := commit(client)).is_success and has_another_postgres(lake, before)):
                # 500: it was killed after COMMIT was sent. Success: a process that outlived its parent answered.
                assert answer.status_code in (200, 500, 503), answer.text
                assert time.monotonic() < until
                time.sleep(0.1)
            assert load(client).json()["metadata"]["properties"]["a"] == "b"
        assert "the embedded Postgres had ended; it runs again" in served.printed
        last = postgres_pid(lake)
        assert served.end(signal.SIGTERM) == 0
        wait_until_ended([last])


@pytest.mark.crash
def test_embedded_postgres_that_hangs_is_killed_at_the_end(lake: Path) -> None:
    with serving(lake, DUCKICELAKE_SHUTDOWN_SECONDS="2", DUCKICELAKE_LINEAGE_FLUSH_SECONDS="0") as served:
        assert httpx.get(f"{served.uri}/readyz", timeout=30).is_success
        processes = stop_family(postgres_pid(lake))
        began = time.monotonic()
        served.end(signal.SIGTERM)
        assert time.monotonic() - began < 2 + 15
        wait_until_ended(processes)
    with serving(lake) as served:
        assert httpx.get(f"{served.uri}/readyz", timeout=30).is_success


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.crash)])
def test_terminal_that_closes_leaves_nothing_behind(lake: Path, workers: str) -> None:
    place_cluster(lake)
    here, there = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "serve", "--lake", str(lake), "--port", "0", "--workers", workers],
        env=environment(DUCKICELAKE_LOG_FORMAT="json"),
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
        preexec_fn=make_terminal_own,  # noqa: PLW1509 - no other thread runs Python here
    )
    os.close(there)
    try:
        printed = b""
        while b"USING iceberg" not in printed and b"ATTACH" not in printed:
            printed += os.read(here, 4096)
        until = time.monotonic() + 60
        while workers == "2" and len(worker_pids(process.pid)) < 2:
            assert time.monotonic() < until
            time.sleep(0.05)
        processes = [process.pid, postgres_pid(lake), *children(process.pid)]
    finally:
        os.close(here)
    try:
        process.wait(60)
    finally:
        process.kill()
    wait_until_ended(processes[1:])


def make_terminal_own() -> None:
    """Let the terminal be the one whose end the process is told of."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
