"""What the plan of upkeep says of followed tables, and that nothing follows them where no worker looks at the lake."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.changelog.doctor import diagnose
from duckicelake.changelog.source import is_follower_free
from duckicelake.cli.serve.background_tasks import write_changelog
from duckicelake.cli.serve.hooks import TaskReporter
from duckicelake.delta.import_.follower import find_due
from duckicelake.delta.import_.sync import adopt_table
from duckicelake.server.app import create_app
from duckicelake.settings.model import Settings
from duckicelake.upkeep import service
from duckicelake.upkeep.sources import SourcePlanner
from tests.delta.import_.test_follow_tasks import INFO, SOON, build_protocol, change, work
from tests.support.commands import run_here
from tests.support.followed_table import Following
from tests.support.waits import wait_until

MISSING = "no worker looks at the lake, so nothing does follow-delta"
ADVICE = "set DUCKICELAKE_UPKEEP_WORKERS to 1 or more, or run `duckicelake work`"
UNWATCHED = (
    "workers look at the lake, but nothing does follow-delta: DUCKICELAKE_DELTA_SYNC_SECONDS is 0 for all of them"
)
UNWATCHED_ADVICE = "set DUCKICELAKE_DELTA_SYNC_SECONDS above 0 for a server with workers, or for `duckicelake work`"
FINE = "workers look at the lake, or it doesn't need them"


@pytest.fixture
def table(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Following:
    """A Delta table of one version, and a table here that follows it."""
    ducklake.execute("USE lake")
    following = Following(services, ducklake)
    following.append()
    following.begin()
    assert not find_due(services), "its log was listed"
    return following


@pytest.fixture
def http(table: Following, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    return serve(create_app(table.services))


def read_plan(http: httpx.Client) -> dict[str, Any]:
    jobs = http.get("/pipeline/v1/plan").raise_for_status().json()["jobs"]
    (job,) = (job for job in jobs if job["kind"] == "follow-delta")
    return dict(job)


def read_warnings(http: httpx.Client) -> list[str]:
    return list(http.get("/pipeline/v1/upkeep").raise_for_status().json()["warnings"])


def plan(http: httpx.Client) -> str:
    return run_here("upkeep", "plan", "--uri", str(http.base_url)).stdout


def test_plan_says_how_a_followed_table_stands(table: Following, http: httpx.Client) -> None:
    services = table.services
    job = read_plan(http)
    assert (job["is-due"], job["next"], job["behind-seconds"]) == (False, None, None)
    assert (job["source"], job["is-automatic"], job["is-chosen"]) == (table.source().root, True, False)
    assert job["why"] == "it is at version 0, and no process looks for the next one"
    SourcePlanner(Settings(delta_sync_seconds=30)).plan(services, is_look=True)
    job = read_plan(http)
    assert (job["is-due"], job["why"]) == (False, "it is at version 0; the next one is looked for")
    assert job["next"] is not None
    table.append()
    change(services, "UPDATE duckicelake_upkeep_look SET next_look = now()")
    SourcePlanner(SOON).plan(services, is_look=False)
    change(services, "UPDATE duckicelake_upkeep_task SET created = created - interval '1 hour'")
    job = read_plan(http)
    assert (job["is-due"], job["why"], job["next"]) == (True, "version 1 is there", None)
    assert 3600 <= job["behind-seconds"] < 7200
    line = next(line for line in plan(http).splitlines() if line.startswith("follow-delta"))
    assert "now" in line
    assert f"version 1 is there ({table.source().root})" in line
    assert work(services) == 1
    job = read_plan(http)
    assert (job["is-due"], job["behind-seconds"]) == (False, None)


def test_plan_says_why_a_followed_table_stands_still(table: Following, http: httpx.Client) -> None:
    table.log(build_protocol("notYetInvented"), INFO)
    assert work(table.services) == 1
    job = read_plan(http)
    assert job["is-due"]
    assert job["why"].startswith("it stands still at version 0: ")
    assert "notYetInvented" in job["why"]
    assert job["next"] is not None
    assert job["behind-seconds"] is not None


def test_look_that_takes_long_is_one(table: Following, http: httpx.Client) -> None:
    SourcePlanner(Settings(delta_sync_seconds=30)).plan(table.services, is_look=True)
    change(table.services, "UPDATE duckicelake_upkeep_look SET next_look = now() - interval '1 hour'")
    job = read_plan(http)
    assert (job["is-due"], job["why"]) == (False, "it is at version 0; the next one is looked for")
    assert job["next"] is None, "when it ends isn't known"


def test_workers_that_look_at_no_delta_table_are_named(
    table: Following, http: httpx.Client, database_url: str, warehouse: Path
) -> None:
    services = table.services
    settings = Settings(database_url=database_url, warehouse=str(warehouse), upkeep_workers=1, delta_sync_seconds=0)
    logged: list[tuple[str, str]] = []

    def log(text: str, *, advice: str, **_: str) -> None:
        logged.append((text, advice))

    def start_server() -> None:
        report = TaskReporter(lambda *_: logged.append, lambda _: logged.append, log)
        with service.SERVICE.run_tasks(settings, services, report):
            pass

    start_server()
    assert logged == [(UNWATCHED, UNWATCHED_ADVICE)]
    SourcePlanner(settings).plan(services, is_look=True)
    assert read_warnings(http) == [f"{UNWATCHED}: {UNWATCHED_ADVICE}"]
    with write_changelog(settings, services):
        wait_until(lambda: not next(finding for finding in diagnose(services.database) if finding.name == "upkeep").ok)
    assert read_plan(http)["why"] == "it is at version 0, and no process looks for the next one"
    SourcePlanner(SOON).plan(services, is_look=True)  # as `duckicelake work` does on another machine
    assert read_warnings(http) == []
    start_server()
    assert len(logged) == 1


def test_missing_worker_is_named_by_status_doctor_and_log(
    table: Following, http: httpx.Client, database_url: str, warehouse: Path
) -> None:
    services = table.services
    settings = Settings(database_url=database_url, warehouse=str(warehouse), upkeep_workers=0)
    logged: list[str] = []

    def start_server() -> None:
        report = TaskReporter(lambda *_: logged.append, lambda _: logged.append, lambda text, **_: logged.append(text))
        with service.SERVICE.run_tasks(settings, services, report):
            pass

    def examine() -> list[tuple[bool, str, str]]:
        found = [finding for finding in diagnose(services.database) if finding.name == "upkeep"]
        return [(finding.ok, finding.detail, finding.advice) for finding in found]

    def is_server_there() -> bool:
        with services.database.statement() as cursor:
            return not is_follower_free(cursor)

    assert examine() == [(True, FINE, "")], "no server runs"
    with write_changelog(settings, services):
        wait_until(is_server_there)
        assert examine() == [(False, MISSING, ADVICE)]
        assert read_warnings(http) == [f"{MISSING}: {ADVICE}"]
        assert MISSING in run_here("upkeep", "status", "--uri", str(http.base_url)).stderr
        start_server()
        assert logged == [MISSING]
        work(services)  # as `duckicelake work` does on another machine
        assert examine() == [(True, FINE, "")]
        start_server()
        assert (read_warnings(http), logged) == ([], [MISSING])
        change(services, "UPDATE duckicelake_upkeep_presence SET noted = noted - interval '4 minutes'")
        assert read_warnings(http) == [f"{MISSING}: {ADVICE}"]
        adopt_table(services, "main.t")
        assert read_warnings(http) == []
