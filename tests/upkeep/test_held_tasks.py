"""A request whose place in the queue another task has: it isn't queued, and the answer says so."""

from collections.abc import Callable
from uuid import uuid4

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from duckicelake.upkeep import queue
from duckicelake.upkeep.planner import plan_lake
from duckicelake.upkeep.worker import Worker
from tests.support.client import Client
from tests.support.commands import run_here
from tests.upkeep.test_queue import LIMITS, insert, set_policies, tasks

TABLE = "/pipeline/v1/namespaces/ns/tables/t/upkeep"
RUNNING = "compact of ns.t, where id < 3, runs: ask for it again once that has ended"
QUEUED = RUNNING.replace("runs", "is in the queue")


@pytest.fixture
def http(client: Client, ducklake: duckdb.DuckDBPyConnection, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    """A server on a lake with a table of small files, and rows in Postgres."""
    set_policies(client.services, {"maintenance.statistics.enabled": "false", "maintenance.flush.min-rows": "3"})
    client.create()
    for number in range(6):
        ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'x' FROM range({number}, {number} + 9)")
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 10)")
    insert(ducklake, 5)
    client.metadata()
    return serve(create_app(client.services))


def claim(services: Services) -> queue.ClaimedTask:
    with services.database.transaction() as cursor:
        claimed = queue.claim_task(cursor, uuid4(), "a worker", ["compact"], 10, 30)
    assert claimed is not None
    return claimed


def leave(services: Services, state: str) -> None:
    """Leave the task that was asked for in a state, as workers do."""
    if state == "queued":
        return
    task = claim(services)
    with services.database.transaction() as cursor:
        if state == "waiting":
            queue.finish_task(cursor, task.claim, "waiting", "a store rests")
        elif state == "lost":
            cursor.execute("UPDATE duckicelake_upkeep_task SET lease_until = now() - interval '1 s'")


def read_conditions(services: Services) -> list[str | None]:
    with services.database.statement() as cursor:
        return [row[0] for row in cursor.execute("SELECT condition FROM duckicelake_upkeep_task").fetchall()]


@pytest.mark.parametrize(
    ("state", "says"), [("running", RUNNING), ("queued", QUEUED), ("waiting", QUEUED), ("lost", QUEUED)]
)
def test_request_of_another_part_is_refused_and_the_first_is_kept(
    http: httpx.Client, client: Client, state: str, says: str
) -> None:
    http.post(TABLE, json={"where": "id < 3"}).raise_for_status()
    leave(client.services, state)
    for body in ({"where": "id > 5"}, {"where": "id > 5", "kinds": ["compact"]}):
        answer = http.post(TABLE, json=body)
        message = f"Nothing was put into the queue: {says}"
        assert (answer.status_code, answer.json()["error"]) == (
            409,
            {"message": message, "type": "TaskHeldException", "code": 409},
        )
    assert read_conditions(client.services) == ["id < 3"]


def test_request_beside_a_task_that_runs_queues_the_rest_and_says_what_is_left(
    http: httpx.Client, client: Client
) -> None:
    http.post(TABLE, json={"where": "id < 3"}).raise_for_status()
    task = claim(client.services)
    answer = http.post("/pipeline/v1/upkeep", json={"kinds": ["flush", "compact"]}).raise_for_status().json()
    assert ([asked["kind"] for asked in answer["tasks"]], answer["problems"]) == (["flush"], [RUNNING])
    assert http.post(TABLE, json={"kinds": ["compact"]}).status_code == 409, "nor is the whole table"
    with client.services.database.transaction() as cursor:
        assert queue.finish_task(cursor, task.claim, "done"), "the one that runs is left alone"
    (asked,) = http.post(TABLE, json={"where": "id > 5"}).raise_for_status().json()["tasks"]
    assert asked["why"] == "asked for, where id > 5"


def test_same_request_beside_the_task_that_runs_is_answered_by_it(http: httpx.Client, client: Client) -> None:
    http.post(TABLE, json={"where": "id < 3"}).raise_for_status()
    task = claim(client.services)
    (asked,) = http.post(TABLE, json={"where": "id < 3"}).raise_for_status().json()["tasks"]
    assert asked["why"] == "asked for, where id < 3"
    with client.services.database.transaction() as cursor:
        assert queue.finish_task(cursor, task.claim, "done")
    assert not [found for found in tasks(client.services) if found.state != "done"]


def test_same_request_again_is_one_task_and_a_request_goes_over_the_plan(http: httpx.Client, client: Client) -> None:
    set_policies(client.services, {"maintenance.automatic": "compact", "maintenance.compaction.min-files": "2"})
    plan_lake(client.services, 0.001, is_forced=True)
    assert [(task.kind, task.requested_by) for task in tasks(client.services)] == [("compact", None)]
    for _ in range(2):
        (asked,) = http.post(TABLE, json={"where": "id < 3"}).raise_for_status().json()["tasks"]
        assert asked["why"] == "asked for, where id < 3"
    assert [task.requested_by for task in tasks(client.services)] == ["anonymous"]
    assert Worker(LIMITS).work(client.services)


@pytest.mark.commands
def test_run_prints_what_has_the_place(http: httpx.Client, client: Client) -> None:
    uri = ("--uri", str(http.base_url))
    run_here("upkeep", "run", "ns.t", "--where", "id < 3", "--no-wait", *uri)
    claim(client.services)
    ended = run_here("upkeep", "run", "ns.t", "--where", "id > 5", "--no-wait", *uri)
    assert (ended.returncode, ended.stdout, RUNNING in ended.stderr) == (6, "", True), ended
    ended = run_here("upkeep", "run", "ns.t", "--only", "compact", "--only", "flush", "--no-wait", *uri)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "1 in the queue\n", f"{RUNNING}\n")
