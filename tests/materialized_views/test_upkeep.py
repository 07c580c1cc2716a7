"""Views that are refreshed by themselves: which are due, and what a task of the upkeep does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import sleep

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.jobs import list_jobs
from duckicelake.catalog.maintenance import list_watched
from duckicelake.catalog.namespaces import update_namespace
from duckicelake.changelog.writer import write_all_changes
from duckicelake.errors import InvalidRequestError, TaskStoppedError
from duckicelake.lineage.events.generator import EventGenerator, parse_source_uuids
from duckicelake.maintenance.policy import QUIET_HOURS
from duckicelake.materialized_views import refreshes
from duckicelake.materialized_views.view_rows import Schedule
from duckicelake.materialized_views.views import schedule_view
from duckicelake.query import contents
from duckicelake.query.contents import ContentProcess
from duckicelake.server.app import create_app
from duckicelake.settings.model import Settings
from duckicelake.upkeep import queue
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.printed_rows import PLAN_HEADINGS, describe_planned
from duckicelake.upkeep.queue import QueuedTask, TaskFilter
from duckicelake.upkeep.sources import SourcePlanner, explain_missing_worker
from duckicelake.upkeep.worker import Worker, WorkerLimits
from tests.materialized_views.conftest import Views


@dataclass
class Control:
    """The control of a task: it stops once a test says so."""

    is_stopped: bool = False
    memory_bytes: int = 256 * 1024**2
    scratch_bytes: int = 256 * 1024**2
    share: float = 1.0

    def check(self) -> None:
        if self.is_stopped:
            raise TaskStoppedError("the worker stops")

    def report(self, counts: Mapping[str, int]) -> None:
        """Nothing looks at it."""


@pytest.fixture
def views(views: Views, monkeypatch: pytest.MonkeyPatch) -> Views:
    monkeypatch.setattr(refreshes, "CHANGE_SECONDS", 0.0)
    views.lake.run("CREATE TABLE t (k INT)", "INSERT INTO t VALUES (1)", "CREATE TABLE u (k INT)")
    views.create("mv", "SELECT k FROM {t}")
    return views


def schedule(views: Views, every: int | None = None, *, on_change: bool = False) -> None:
    schedule_view(views.services, ("main",), "mv", Schedule(every, on_change))


def age(views: Views, column: str, seconds: int) -> None:
    with views.services.database.transaction() as cursor:
        cursor.execute(f"UPDATE duckicelake_materialized_view SET {column} = {column} - interval '{seconds} seconds'")


def test_view_is_due_by_its_schedule(views: Views) -> None:
    assert not refreshes.find_due(views.services)
    schedule(views, 3600)
    assert not refreshes.find_due(views.services)
    age(views, "refreshed", 3700)
    (task,) = refreshes.find_due(views.services)
    assert (task.kind, task.table, task.why) == ("refresh", "mv", "it is refreshed every 3600 s")
    schedule(views)
    assert not refreshes.find_due(views.services)


def test_view_is_due_once_a_source_has_changed(views: Views, tmp_path: Path) -> None:
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO u VALUES (1)")
    assert not refreshes.find_due(views.services)
    views.lake.run("INSERT INTO t VALUES (2)")
    (task,) = refreshes.find_due(views.services)
    outcome = refreshes.run_refresh(views.services, task, Control())
    assert (outcome.result, outcome.counts) == ("done", {"rows written": 1})
    assert not refreshes.find_due(views.services)
    views.lake.run("CALL ducklake_flush_inlined_data('lake')")
    assert not refreshes.find_due(views.services)


def test_worker_refreshes_what_is_due_and_the_queue_says_so(views: Views) -> None:
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO t VALUES (2)")
    planner = SourcePlanner(Settings())
    assert planner.plan(views.services, is_look=False) == 0
    assert planner.plan(views.services, is_look=True) == 1
    worker = Worker(WorkerLimits(256 * 1024**2, 256 * 1024**2, 1))
    assert worker.work(views.services)
    views.assert_exact("mv", "SELECT k FROM {t}")
    assert views.find("mv").last.mode == "incremental"
    assert planner.plan(views.services, is_look=True) == 0
    (job,) = list_jobs(views.services, PageRequest(), kind="refresh").items
    assert (job.result, job.message) == ("done", "incremental: only rows were appended")


def set_policies(views: Views, policies: dict[str, str]) -> None:
    with views.services.database.transaction() as cursor:
        queue.write_policies(cursor, policies)


def list_tasks(views: Views) -> list[QueuedTask]:
    with views.services.database.reading() as cursor:
        return queue.list_tasks(cursor, TaskFilter(), None)


def read_row(views: Views) -> object:
    with views.services.database.statement(only_reads=True) as cursor:
        return cursor.execute("SELECT xmin::text FROM duckicelake_upkeep_task").fetchall()


def test_refresh_that_waits_for_the_end_of_quiet_hours_wakes_no_worker(views: Views) -> None:
    services = views.services
    set_policies(views, {QUIET_HOURS: "00:00-12:00" if datetime.now(UTC).hour < 12 else "12:00-00:00"})
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO t VALUES (2)")
    listener = services.database.open_listener(queue.CHANNEL)
    with listener.connect():
        planner, worker = SourcePlanner(Settings()), Worker(WorkerLimits(256 * 1024**2, 256 * 1024**2, 1))
        assert planner.plan(services, is_look=True) == 1
        assert listener.wait(5)
        assert worker.work(services)
        (task,) = list_tasks(views)
        assert (task.state, task.message) == ("waiting", "quiet hours")
        row = read_row(views)
        assert planner.plan(services, is_look=True) == 0
        assert read_row(views) == row
        assert not listener.wait(0.3)
        set_policies(views, {})
        assert planner.plan(services, is_look=True) == 1
        assert listener.wait(5)
        assert worker.work(services)
    listener.release()
    views.assert_exact("mv", "SELECT k FROM {t}")


def set_quiet_hours(views: Views, text: str) -> None:
    """Set a namespace's, as clients do, whose values aren't looked at."""
    update_namespace(views.services, ("main",), (), {QUIET_HOURS: text})


def test_quiet_hours_that_can_not_be_read_block_the_refresh_and_say_what_is_wrong(views: Views) -> None:
    services = views.services
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO t VALUES (2)")
    set_quiet_hours(views, "at night")
    planner, worker = SourcePlanner(Settings()), Worker(WorkerLimits(256 * 1024**2, 256 * 1024**2, 1))
    assert planner.plan(services, is_look=True) == 0
    (task,) = list_tasks(views)
    assert task.state == "blocked"
    assert "property maintenance.quiet-hours is 'at night'" in str(task.message)
    assert "version" not in str(task.message)
    row = read_row(views)
    assert planner.plan(services, is_look=True) == 0
    assert not worker.work(services)
    assert read_row(views) == row, "the task is written again at each look"
    set_quiet_hours(views, "")
    assert planner.plan(services, is_look=True) == 1
    assert worker.work(services)
    views.assert_exact("mv", "SELECT k FROM {t}")


def test_task_whose_policies_its_worker_does_not_know_is_not_tried_at_each_look(views: Views) -> None:
    services = views.services
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO t VALUES (2)")
    planner, worker = SourcePlanner(Settings()), Worker(WorkerLimits(256 * 1024**2, 256 * 1024**2, 1))
    assert planner.plan(services, is_look=True) == 1
    with services.database.transaction() as cursor:
        unknown = '{"maintenance.quiet-hours": "written by a newer version"}'
        cursor.execute("UPDATE duckicelake_upkeep_task SET policies = %s", [unknown])
    assert worker.work(services)
    with services.database.transaction() as cursor:  # as that version's server writes them again
        cursor.execute("UPDATE duckicelake_upkeep_task SET policies = '{}'")
    (task,) = list_tasks(views)
    assert (task.state, "is of another version" in str(task.message)) == ("blocked", True)
    assert planner.plan(services, is_look=True) == 0
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_upkeep_task SET available = available - interval '61 seconds'")
    assert planner.plan(services, is_look=True) == 1


def test_changes_wait_for_others(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshes, "CHANGE_SECONDS", 3600.0)
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO t VALUES (2)")
    assert not refreshes.find_due(views.services)


def test_refresh_that_failed_is_left_alone_for_a_while(views: Views, tmp_path: Path) -> None:
    schedule(views, on_change=True)
    views.lake.run("ALTER TABLE t RENAME COLUMN k TO l")
    (task,) = refreshes.find_due(views.services)
    with pytest.raises(InvalidRequestError):
        refreshes.run_refresh(views.services, task, Control())
    assert not refreshes.find_due(views.services)
    age(views, "failed_at", 400)
    assert refreshes.find_due(views.services)


def test_refresh_that_is_asked_for_waits_for_nothing(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    services = views.services
    monkeypatch.setattr(refreshes, "CHANGE_SECONDS", 3600.0)
    schedule(views, on_change=True)
    assert request_tasks(services, ("main",), "mv", ["refresh"]) == []
    views.lake.run("INSERT INTO t VALUES (2)")
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_materialized_view SET error = 'e', failed_at = clock_timestamp()")
    assert not refreshes.find_due(services)
    assert request_tasks(services, ("main",), "t", ["refresh"]) == []
    assert request_tasks(services, None, None, ["flush"]) == []
    (asked,) = request_tasks(services, ("main",), "mv", ["refresh"])
    assert (asked.task.kind, asked.task.table) == ("refresh", "mv")
    assert Worker(WorkerLimits(256 * 1024**2, 256 * 1024**2, 1)).work(services)
    views.assert_exact("mv", "SELECT k FROM {t}")


def test_task_that_is_stopped_goes_on_later(views: Views, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_CHECK_SECONDS", 0.02)
    schedule(views, on_change=True)
    views.lake.run("INSERT INTO t SELECT i FROM range(2000) r(i)")
    control, describe = Control(), ContentProcess.describe

    def stop(self: ContentProcess, tree: object) -> object:
        control.is_stopped = True
        while self.process.is_alive:
            sleep(0.01)
        return describe(self, tree)

    monkeypatch.setattr(ContentProcess, "describe", stop)
    (task,) = refreshes.find_due(views.services)
    with pytest.raises(TaskStoppedError, match="the worker stops"):
        refreshes.run_refresh(views.services, task, control)
    monkeypatch.undo()
    assert views.find("mv").error is None
    refreshes.run_refresh(views.services, task, Control())
    views.assert_exact("mv", "SELECT k FROM {t}")


def test_views_that_nothing_concerns_do_not_fall_behind(views: Views, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshes, "_MAX_SNAPSHOTS", 3)
    schedule(views, on_change=True)
    before = views.find("mv").last.snapshot_id
    for number in range(5):
        views.lake.run(f"INSERT INTO u VALUES ({number})")
    refreshes.find_due(views.services)
    after = views.find("mv").last.snapshot_id
    assert after == before + 6  # its own, and five of `u`
    for number in range(5):
        views.lake.run(f"INSERT INTO t VALUES ({number})")
    assert refreshes.find_due(views.services)
    assert views.find("mv").last.snapshot_id == after
    views.refresh("mv")
    views.assert_exact("mv", "SELECT k FROM {t}")


@pytest.mark.parametrize(
    ("statements", "is_skipped"),
    [
        (["CREATE TABLE {name} (k INT)", "DROP TABLE {name}", "CREATE VIEW v{name} AS SELECT 1 AS x"], True),
        (["CREATE SCHEMA {name}", "CREATE TABLE {name}.t (k INT)", "DROP SCHEMA {name} CASCADE"], True),
        (["CREATE MACRO {name}() AS 1"], False),
        (["ALTER TABLE t RENAME TO {name}"], False),
        (["DROP VIEW inner_view", "CREATE VIEW inner_view AS SELECT k FROM t"], False),
        (["DROP VIEW inner_view"], False),
    ],
    ids=["other tables", "other schemas", "a macro", "a source is renamed", "a view is replaced", "a view is dropped"],
)
def test_objects_that_are_made_and_dropped_concern_the_views_that_read_them(
    views: Views, monkeypatch: pytest.MonkeyPatch, statements: list[str], is_skipped: bool
) -> None:
    monkeypatch.setattr(refreshes, "_MAX_SNAPSHOTS", 0)
    views.lake.run("CREATE VIEW inner_view AS SELECT k FROM t")
    views.create("over", "SELECT k FROM inner_view")
    schedule_view(views.services, ("main",), "over", Schedule(None, on_change=True))
    for statement in statements:
        views.lake.run(statement.format(name="other"))
    before = views.find("over").last
    refreshes.find_due(views.services)
    after = views.find("over").last
    assert (after.snapshot_id > before.snapshot_id) == (after.fresh_as_of > before.fresh_as_of) == is_skipped


def test_lineage_has_the_sources_whoever_refreshes(views: Views) -> None:
    views.lake.run("INSERT INTO u VALUES (1)")
    views.create("both", "SELECT t.k FROM t JOIN u USING (k)")
    write_all_changes(views.services)
    while EventGenerator(views.services, "http://catalog:8181", age=timedelta(0)).advance():
        pass
    with views.services.database.statement() as cursor:
        rows = cursor.execute("SELECT body FROM duckicelake_lineage_event ORDER BY id").fetchall()
    bodies = [body for (body,) in rows if any("both" in one["name"] for one in body["outputs"])]
    names = {one["facets"]["symlinks"]["identifiers"][0]["name"] for body in bodies for one in body["inputs"]}
    assert {name.rpartition(".")[2] for name in names} == {"t", "u"}


@pytest.mark.parametrize(
    "said", ["", "x", "[]", "{}", '{"source-states": [{}]}', '{"source-states": {"a": 1}}', "[" * 9999]
)
def test_summary_that_names_no_sources_is_no_trouble(said: str) -> None:
    assert parse_source_uuids({"refresh-state": said}) == []


def read_plan(views: Views) -> list[tuple[str, bool, str, bool]]:
    watched = list_watched(views.services, [(("main",), "mv"), (("main",), "t")])
    assert {(table.kind, table.namespace, table.table, table.source) for table in watched} <= {
        ("refresh", ("main",), "mv", "main.t")
    }
    return [(table.why, table.is_due, type(table.next_at).__name__, bool(table.behind_seconds)) for table in watched]


def test_plan_says_which_views_are_refreshed_and_when(views: Views) -> None:
    assert read_plan(views) == []
    schedule(views, 3600)
    assert read_plan(views) == [("it is refreshed every 3600 s", False, "datetime", False)]
    age(views, "refreshed", 3700)
    assert read_plan(views) == [("it is refreshed every 3600 s", True, "NoneType", True)]
    schedule(views, on_change=True)
    assert read_plan(views) == [("no source has changed", False, "NoneType", False)]
    views.lake.run("INSERT INTO t VALUES (2)")
    assert read_plan(views) == [("a source has changed", True, "NoneType", True)]
    with views.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_materialized_view SET error = 'it is gone', failed_at = now()")
    assert read_plan(views) == [("its last refresh failed: it is gone", True, "datetime", True)]


def test_plan_of_a_view_that_reads_no_table_shows_no_files(
    views: Views, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    views.create("plain", "SELECT 1 AS x")
    schedule_view(views.services, ("main",), "plain", Schedule(3600, on_change=False))
    jobs = serve(create_app(views.services)).get("/pipeline/v1/plan").raise_for_status().json()["jobs"]
    (row,) = (describe_planned(job) for job in jobs if job["table"] == "plain" and job["kind"] == "refresh")
    named = dict(zip(PLAN_HEADINGS, row, strict=True))
    assert {named[name] for name in ("files", "bytes", "files saved", "scans", "plans", "for")} == {""}
    assert named["due"] not in {"", "now"}
    assert named["why"] == "it is refreshed every 3600 s"


def test_missing_worker_is_named_once_a_view_is_refreshed_by_itself(views: Views) -> None:
    def explain() -> str | None:
        with views.services.database.statement() as cursor:
            missing = explain_missing_worker(cursor)
            return None if missing is None else missing.detail

    assert explain() is None
    schedule(views, on_change=True)
    assert explain() == "no worker looks at the lake, so nothing does refresh"
    SourcePlanner(Settings()).plan(views.services, is_look=True)
    assert explain() is None
