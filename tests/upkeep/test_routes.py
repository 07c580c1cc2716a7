"""The routes of upkeep: the queue, tasks that are asked for, policies of the lake and of tables."""

import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.cli.serve.hooks import TaskReporter
from duckicelake.cli.wiring.services import build_warehouse_wiring, open_services
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.server.app import create_app
from duckicelake.settings.model import Settings
from duckicelake.upkeep import process, queue, service
from duckicelake.upkeep.planner import plan_lake
from duckicelake.upkeep.process import LakeRounds
from duckicelake.upkeep.worker import Worker
from tests.support.client import Client, duckdb_rows, pyiceberg_rows, set_properties
from tests.support.commands import run_here
from tests.support.waits import wait_until
from tests.upkeep.test_queue import LIMITS, insert

TABLE = "/pipeline/v1/namespaces/ns/tables/t"


@pytest.fixture
def http(client: Client, ducklake: duckdb.DuckDBPyConnection, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    """A server on a lake with a table whose rows are in Postgres."""
    client.create(properties={"maintenance.flush.min-rows": "3"})
    insert(ducklake, 5)
    return serve(create_app(client.services))


def test_task_that_is_asked_for_is_in_the_queue_until_a_worker_has_done_it(http: httpx.Client, client: Client) -> None:
    asked = http.post(f"{TABLE}/upkeep", json={"kinds": ["flush"]}).raise_for_status().json()["tasks"]
    assert [(task["kind"], task["table"]) for task in asked] == [("flush", "t")]
    (task,) = http.get("/pipeline/v1/upkeep", params={"state": "queued"}).json()["tasks"]
    assert (task["requested-by"], task["attempts"]) == ("anonymous", 0)
    assert Worker(LIMITS).work(client.services)
    (task,) = http.get("/pipeline/v1/upkeep", params={"namespace": "ns", "table": "t"}).json()["tasks"]
    assert (task["state"], task["counts"]["rows in Postgres"]) == ("done", 5)
    assert http.post("/pipeline/v1/upkeep", json={"kinds": ["flush"], "namespace": ["ns"]}).json()["tasks"] == []


def test_task_that_is_asked_for_does_not_wait_for_the_next_look(
    http: httpx.Client, client: Client, database_url: str, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_LOOK_SECONDS", 3600)
    failures: list[Exception] = []
    report = TaskReporter(lambda *_: failures.append, lambda _: failures.append, print)
    settings = Settings(database_url=database_url, warehouse=str(warehouse), upkeep_workers=1)
    with service.SERVICE.run_tasks(settings, client.services, report):
        http.post(f"{TABLE}/upkeep", json={"kinds": ["flush"]}).raise_for_status()
        wait_until(lambda: bool(http.get("/pipeline/v1/upkeep", params={"state": "done"}).json()["tasks"]))
    assert failures == []


def test_idle_worker_of_another_process_takes_a_task_at_once(
    http: httpx.Client, client: Client, database_url: str, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOOK_SECONDS", 7200.0)
    worker = Worker(LIMITS)
    settings = Settings(database_url=database_url, warehouse=str(warehouse))
    with open_services(settings) as services:
        rounds = LakeRounds(services, build_warehouse_wiring(settings), worker, settings)
        thread = threading.Thread(target=rounds.run)
        thread.start()
        wait_until(lambda: bool(rounds._pauses))  # it has looked, and would look again in a minute
        http.post(f"{TABLE}/upkeep", json={"kinds": ["flush"]}).raise_for_status()
        wait_until(lambda: bool(http.get("/pipeline/v1/upkeep", params={"state": "done"}).json()["tasks"]))
        worker.stopped.set()
        rounds.stop()
        thread.join()


def test_part_of_a_table_is_compacted_and_no_plan_makes_it_the_whole(
    client: Client, ducklake: duckdb.DuckDBPyConnection, serve: Callable[[FastAPI], httpx.Client]
) -> None:
    client.create(properties={"maintenance.compaction.min-files": "9"})
    http = serve(create_app(client.services))
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (name)")
    for number in range(6):
        ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({number}, 'a'), ({number}, 'b'), ({number}, 'c')")
    rows = duckdb_rows(ducklake)
    body = {"where": "name = 'b' OR name = 'c'"}
    (asked,) = http.post(f"{TABLE}/upkeep", json=body).raise_for_status().json()["tasks"]
    assert (asked["kind"], asked["why"]) == ("compact", "asked for, where name = 'b' OR name = 'c'")
    with client.services.database.transaction() as cursor:
        queue.write_policies(cursor, {AUTOMATIC: "compact", "maintenance.statistics.enabled": "false"})
    client.commit(set_properties(**{"maintenance.compaction.min-files": "2"}))
    plan_lake(client.services, 0.001, is_forced=True)
    assert Worker(LIMITS).work(client.services)
    (task,) = http.get("/pipeline/v1/upkeep").json()["tasks"]
    assert (task["state"], task["counts"]["rewritten files"], task["counts"]["added files"]) == ("done", 12, 2), task
    assert duckdb_rows(ducklake) == rows == pyiceberg_rows(client.load())
    plan_lake(client.services, 0.001, is_forced=True)
    assert Worker(LIMITS).work(client.services), "the rest is due by the plan"
    (task,) = http.get("/pipeline/v1/upkeep").json()["tasks"]
    assert (task["state"], task["counts"]["rewritten files"]) == ("done", 6), task


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("POST", f"{TABLE}/upkeep", {"kinds": ["nope"]}, 400, "'nope' is no kind of upkeep: there are"),
        ("POST", f"{TABLE}/upkeep", {"where": " "}, 400, "The condition is empty"),
        ("POST", f"{TABLE}/upkeep", {"where": "nope = 1"}, 400, "nope"),
        ("POST", f"{TABLE}/upkeep", {"where": "length(name) = 1"}, 400, "No statistics decide LENGTH(name) = 1"),
        (
            "POST",
            f"{TABLE}/upkeep",
            {"where": "id = 1", "kinds": ["flush"]},
            400,
            "compact and sort rewrite, not about",
        ),
        ("POST", f"{TABLE}/upkeep", {"where": "id = 1", "kinds": ["sort"]}, 400, "set maintenance.sort.order"),
        ("POST", "/pipeline/v1/namespaces/ns/tables/none/upkeep", {}, 404, "Table does not exist: ns.none"),
        ("GET", "/pipeline/v1/namespaces/ns/tables/none/policies", None, 404, "Table does not exist: ns.none"),
        ("GET", "/pipeline/v1/namespaces/none/policies", None, 404, "Namespace does not exist: none"),
        ("GET", "/pipeline/v1/upkeep?state=nope", None, 400, "'nope' is no state of a task: there are queued"),
        ("GET", "/pipeline/v1/upkeep?table=t", None, 400, "give that, too"),
        ("PUT", "/pipeline/v1/policies", {"policies": {AUTOMATIC: "nope"}}, 400, "should be none, or kinds of flush"),
        ("PUT", "/pipeline/v1/policies", {"policies": {"owner": "me"}}, 400, "'owner' is no policy of a lake"),
        (
            "PUT",
            "/pipeline/v1/policies",
            {"policies": {"maintenance.flush.Min_Rows": "5"}},
            400,
            "did you mean maintenance.flush.min-rows?",
        ),
        ("PUT", "/pipeline/v1/policies", {"policies": {"maintenance.quiet-hours": "9-5"}}, 400, "hours as 22:00-06:00"),
    ],
)
def test_wrong_requests_are_refused(
    http: httpx.Client, method: str, path: str, body: object, status: int, says: str
) -> None:
    answer = http.request(method, path, json=body)
    assert (answer.status_code, says in answer.text) == (status, True), answer.text


def test_policies_say_who_set_them(http: httpx.Client) -> None:
    policies = {AUTOMATIC: "flush", "maintenance.flush.min-rows": "7"}
    http.put("/pipeline/v1/policies", json={"policies": policies}).raise_for_status()
    assert http.get("/pipeline/v1/policies").json()["policies"] == policies
    updates = {"updates": {"maintenance.quiet-hours": "01:00-02:00 Asia/Tokyo"}}
    http.post("/v1/namespaces/ns/properties", json=updates).raise_for_status()
    answer = http.get(f"{TABLE}/policies").json()
    found = {policy["name"]: (policy["value"], policy["source"]) for policy in answer["policies"]}
    assert found[AUTOMATIC] == ("flush", "lake")
    assert found["maintenance.flush.min-rows"] == ("3", "table")
    assert found["maintenance.quiet-hours"] == ("01:00-02:00 Asia/Tokyo", "namespace ns")
    assert answer["problem"] is None


def test_command_sets_policies_of_a_table_a_namespace_and_the_lake(client: Client, http: httpx.Client) -> None:
    def call(*arguments: str) -> tuple[int, list[list[str]], str]:
        ended = run_here("upkeep", "policies", *arguments, "--uri", str(http.base_url))
        rows = [line.strip().split(maxsplit=2) for line in ended.stdout.splitlines() if line.startswith("maintenance.")]
        return ended.returncode, rows, ended.stderr

    few, late = "maintenance.compaction.min-files", "maintenance.flush.max-age"
    assert call("ns.t", "--unset", "maintenance.flush.min-rows")[1] == []
    assert call("--set", f"{few}=9")[1] == [[few, "9", "lake"]]
    assert call("ns", "--set", f"{few}=8", "--set", f"{late}=2h")[1] == [
        [few, "8", "namespace ns"],
        [late, "2h", "namespace ns"],
    ]
    assert call("ns.t", "--set", f"{few}=7")[1] == [[few, "7", "table"], [late, "2h", "namespace ns"]]
    assert client.metadata()["properties"][few] == "7"
    assert call("ns.t")[1] == [[few, "7", "table"], [late, "2h", "namespace ns"]]
    assert call("ns.t", "--unset", few)[1][0] == [few, "8", "namespace ns"]
    assert call("ns", "--unset", few, "--unset", late)[1] == [[few, "9", "lake"]]
    assert call("--unset", few)[1] == []
    wrong_values = {
        "owner=me": "'owner' is no policy",
        f"{few}=many": "should be a number from 1 on",
        "history.expire.max-snapshot-age=9": "'history.expire.max-snapshot-age' is no policy: did you mean history",
        "maintenance.flush.Min_Rows=9": "is no policy: did you mean maintenance.flush.min-rows?",
    }
    for wrong, says in wrong_values.items():
        for place in ((), ("ns",), ("ns.t",)):
            code, rows, error = call(*place, "--set", wrong)
            assert (code, rows, says in error) == (2, [], True), error
    assert call("none")[::2] == (2, "duckicelake: there is neither a table nor a namespace none\n")


def test_command_names_and_removes_misspelt_policies_of_another_client(client: Client, http: httpx.Client) -> None:
    misspelt = {"maintenance.flush.Min_Rows": "5", "history.expire.max-age": "7"}
    client.commit(set_properties(**misspelt))
    place = ("upkeep", "policies", "ns.t", "--uri", str(http.base_url))
    shown = run_here(*place)
    assert "did you mean maintenance.flush.min-rows?" in shown.stderr
    assert all(f"{name} " in shown.stdout for name in misspelt), shown.stdout
    ended = run_here(*place, *(part for name in misspelt for part in ("--unset", name)))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not misspelt.keys() & client.metadata()["properties"].keys()
    refused = run_here(*place, "--unset", "owner")
    assert (refused.returncode, "'owner' is no policy" in refused.stderr) == (2, True)
