"""`duckicelake upkeep`: the plan with its costs and gains, the queue and the history, as lines and as JSON."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import duckdb
import httpx
import pytest
from fastapi import FastAPI

from duckicelake.server.app import create_app
from duckicelake.upkeep.worker import Worker
from tests.support.client import Client
from tests.support.commands import run_here
from tests.upkeep.test_queue import LIMITS, set_policies

pytestmark = pytest.mark.commands
Upkeep = Callable[..., CompletedProcess[str]]


@pytest.fixture
def upkeep(client: Client, ducklake: duckdb.DuckDBPyConnection, serve: Callable[[FastAPI], httpx.Client]) -> Upkeep:
    """Runs commands on a lake with a table of twelve small files."""
    off = dict.fromkeys(("maintenance.statistics.enabled", "maintenance.orphans.enabled"), "false")
    set_policies(client.services, off)
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(12):
        ducklake.execute(f"INSERT INTO lake.ns.t SELECT range, 'x' FROM range({number}, {number} + 20)")
    uri = str(serve(create_app(client.services)).base_url)
    return lambda *arguments: run_here("upkeep", *arguments, "--uri", uri)


def test_plan_queue_and_history(client: Client, upkeep: Upkeep) -> None:
    (job,) = json.loads(upkeep("plan", "ns", "--json").stdout)["jobs"]
    estimate = job["estimate"]
    assert (job["kind"], estimate["files-read"], estimate["files-saved"]) == ("compact", 12, 11)
    assert (estimate["planning-speedup"], estimate["scan-speedup"] > 11) == (12.0, True)
    assert estimate["bytes-read"] > 1000
    heading, line = upkeep("plan", "ns.t").stdout.splitlines()
    assert heading.split()[:5] == ["task", "table", "files", "bytes", "files"]
    assert "12.0 times" in line
    assert "no " in line
    assert upkeep("status").stdout == "the queue is empty\n"
    assert upkeep("run", "ns.t", "--no-wait").stdout == "1 in the queue\n"
    assert "1 queued" in upkeep("status", "ns").stdout
    assert Worker(LIMITS).work(client.services)
    shown = upkeep("status", "ns.t").stdout
    assert "12 rewritten files, 1 added file, " in shown
    assert shown.splitlines()[-1] == "1 done"
    (task,) = json.loads(upkeep("status", "--state", "done", "--json").stdout)["tasks"]
    assert (task["kind"], task["counts"]["added files"], task["estimate"]) == ("compact", 1, estimate)
    assert json.loads(upkeep("status", "--state", "blocked", "--json").stdout) == {"tasks": []}
    (done,) = json.loads(upkeep("history", "ns.t", "--json").stdout)["jobs"]
    assert (done["kind"], done["result"], done["counts"]["rewritten files"]) == ("compact", "done", 12)
    assert "12 rewritten files" in upkeep("history").stdout
    assert upkeep("run").stdout == "nothing to do\n"
    assert json.loads(upkeep("plan", "--json").stdout) == {"jobs": [], "problems": []}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan", "nope"), "there is neither a table nor a namespace nope"),
        (("run", "--only", "vacuum"), "'vacuum' is no kind of upkeep: there are bloom-filters, compact, expire"),
        (("run", "ns", "--where", "id = 1"), "--where is a condition on the columns of one table: name that"),
        (("run", "ns.t", "--where", "nope = 1"), "nope"),
        (("status", "--state", "lost"), "'lost' is no state of a task: there are queued, running"),
        (("policies", "--set", "maintenance.automatic"), "expected <policy>=<value>"),
        (("policies", "--set", "maintenance.flush.min-row=1"), "did you mean maintenance.flush.min-rows?"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(upkeep: Upkeep, arguments: tuple[str, ...], says: str) -> None:
    ended = upkeep(*arguments)
    assert ended.returncode in {1, 2, 3}, ended
    assert (says in ended.stderr, ended.stdout, len(ended.stderr.splitlines())) == (True, "", 1), ended.stderr
