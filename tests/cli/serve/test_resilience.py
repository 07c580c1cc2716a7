"""Postgres goes away and comes back, here or elsewhere: requests are told to try again, and then they succeed."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_commands import COMMAND, SECONDS, environment, lake, serving
from tests.support.replicas import following, lagging, running_cluster, url_of

__all__ = ["lake"]
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
TABLES = "/v1/namespaces/main/tables"
DEADLINE_SECONDS = 120
Json = dict[str, Any]


@contextmanager
def served_from(url: str, lake: Path, workers: str) -> Iterator[httpx.Client]:
    """A client of a server whose table `t` has the property `a`."""
    with another_server(url, lake, workers) as client:
        until_it_succeeds(lambda: client.post(TABLES, json={"name": "t", "schema": SCHEMA}))
        assert until_it_succeeds(lambda: set_property(client, "a"))
        yield client


@contextmanager
def another_server(url: str, lake: Path, workers: str) -> Iterator[httpx.Client]:
    """A client of a server of the lake whose tables are in this database."""
    with (
        serving(lake, "--create", "--workers", workers, **settings_of(url, lake)) as served,
        httpx.Client(base_url=served.uri, timeout=60) as client,
    ):
        yield client


def settings_of(url: str, lake: Path) -> dict[str, str]:
    return {
        "DUCKICELAKE_DATABASE_URL": url,
        "DUCKICELAKE_WAREHOUSE": str(lake.parent / "warehouse"),
        "DUCKICELAKE_POOL_SECONDS": "0.5",
    }


def set_property(client: httpx.Client, name: str) -> httpx.Response:
    update = {"action": "set-properties", "updates": {name: "yes"}}
    return client.post(f"{TABLES}/t", json={"requirements": [], "updates": [update]})


def load(client: httpx.Client) -> httpx.Response:
    return client.get(f"{TABLES}/t")


def properties(answer: httpx.Response) -> set[str]:
    found: Json = answer.json()["metadata"]["properties"]
    return {name for name, value in found.items() if value == "yes"}


def assert_asked_to_try_again(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException"), answer.text
    assert answer.headers["Retry-After"] == "1"


def until_it_succeeds(request: Callable[[], httpx.Response]) -> httpx.Response:
    """The answer once there is a good one; until then, all are told to try again."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (answer := request()).is_success:
        assert_asked_to_try_again(answer)
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    return answer


@pytest.mark.crash
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.crash)])
def test_server_goes_on_by_itself_after_a_crash_of_postgres(lake: Path, workers: str) -> None:
    with running_cluster() as postgres, served_from(postgres.url, lake, workers) as client:
        postgres.stop()
        for _ in range(2):
            assert_asked_to_try_again(set_property(client, "b"))
            assert_asked_to_try_again(load(client))
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        postgres.start()
        until_it_succeeds(lambda: set_property(client, "c"))
        assert properties(until_it_succeeds(lambda: load(client))) == {"a", "c"}
        until_it_succeeds(lambda: client.get("/readyz"))


@pytest.mark.crash
def test_server_goes_on_by_itself_with_the_standby_that_is_promoted(lake: Path) -> None:
    with (
        running_cluster() as primary,
        following(primary) as standby,
        served_from(url_of([standby, primary]), lake, "2") as client,
    ):
        primary.stop()
        assert_asked_to_try_again(set_property(client, "b"))
        assert_asked_to_try_again(load(client))
        standby.promote()
        until_it_succeeds(lambda: set_property(client, "c"))
        assert properties(until_it_succeeds(lambda: load(client))) == {"a", "c"}


@pytest.mark.crash
@pytest.mark.parametrize("workers", ["1", "2"])
def test_server_forgets_commits_that_a_failover_has_lost(lake: Path, workers: str) -> None:
    """What another server commits instead may have the same version number."""
    with (
        running_cluster() as primary,
        lagging(primary) as standby,
        served_from(url_of([standby, primary]), lake, workers) as client,
    ):
        standby.wait_for(primary)
        standby.stop()
        until_it_succeeds(lambda: set_property(client, "lost"))
        assert properties(until_it_succeeds(lambda: load(client))) == {"a", "lost"}
        primary.stop()
        standby.start()
        standby.promote()
        with another_server(standby.url, lake, "1") as other:
            until_it_succeeds(lambda: set_property(other, "instead"))
        assert properties(until_it_succeeds(lambda: load(client))) == {"a", "instead"}
        until_it_succeeds(lambda: set_property(client, "b"))
        assert properties(until_it_succeeds(lambda: load(client))) == {"a", "b", "instead"}


@pytest.mark.crash
def test_sync_that_follows_waits_for_postgres_and_ends_where_another_has_taken_over(lake: Path) -> None:
    """It remembers tables as they were, of which the last commits may be lost."""
    with running_cluster() as primary, following(primary) as standby:
        url, report = url_of([standby, primary]), lake.parent / "report"
        with served_from(url, lake, "1"):
            pass
        with report.open("wb") as stream:
            syncing = subprocess.Popen(
                [*COMMAND, "delta", "sync", "--follow", "--interval", "0.05", "--lake", str(lake)],
                cwd=lake.parent,
                env=environment(**settings_of(url, lake)),
                stdout=stream,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until_reported(syncing, report, "no table follows a Delta table")
            primary.stop()
            wait_until_reported(syncing, report, "nothing was written")
            assert syncing.poll() is None
            standby.promote()
            assert syncing.wait(SECONDS) != 0
            assert report.read_text().splitlines()[-1] == (
                "duckicelake: Postgres has failed over; nothing was written, try again"
            )
        finally:
            syncing.kill()


def wait_until_reported(process: subprocess.Popen[bytes], report: Path, text: str) -> None:
    deadline = time.monotonic() + SECONDS
    while text not in report.read_text():
        assert process.poll() is None, report.read_text()
        assert time.monotonic() < deadline
        time.sleep(0.02)
