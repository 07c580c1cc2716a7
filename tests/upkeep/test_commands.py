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
from tests.support.client import Client, set_properties
from tests.support.commands import run_here
from tests.upkeep.test_queue import LIMITS, set_policies

pytestmark = pytest.mark.commands
Upkeep = Callable[..., CompletedProcess[str]]
NO_ORDER = "set maintenance.sort.order (by a table's own order only --where sorts)"


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
    assert json.loads(upkeep("status", "--state", "blocked", "--json").stdout) == {"tasks": [], "warnings": []}
    (done,) = json.loads(upkeep("history", "ns.t", "--json").stdout)["jobs"]
    assert (done["kind"], done["result"], done["counts"]["rewritten files"]) == ("compact", "done", 12)
    assert "12 rewritten files" in upkeep("history").stdout
    assert upkeep("run").stdout == "nothing to do\n"
    assert json.loads(upkeep("plan", "--json").stdout) == {"jobs": [], "problems": []}


@pytest.mark.parametrize(
    ("kind", "policies", "says"),
    [
        ("bloom-filters", {}, "set write.parquet.bloom-filter-enabled.column.<name>=true on the table"),
        ("sort", {}, NO_ORDER),
        ("compact", {"maintenance.compaction.enabled": "false"}, "maintenance.compaction.enabled is false"),
        ("statistics", {}, "maintenance.statistics.enabled is false"),
        ("expire", {}, "set history.expire.max-snapshot-age-ms, or maintenance.expire.enabled=true"),
        ("expire", {"maintenance.expire.enabled": "false"}, "maintenance.expire.enabled is false"),
        ("expire", {"gc.enabled": "false", "maintenance.expire.enabled": "true"}, "gc.enabled is false"),
        ("remove-orphans", {}, "maintenance.orphans.enabled is false"),
        ("remove-orphans", {"gc.enabled": "false", "maintenance.orphans.enabled": "true"}, "gc.enabled is false"),
        ("flush", {"maintenance.enabled": "false"}, "maintenance.enabled is false"),
        ("flush", {}, None),
        ("pack-manifests", {}, None),
        ("rewrite-deletes", {}, None),
    ],
)
def test_run_says_that_no_table_asks_for_a_kind_and_what_to_set(
    client: Client, upkeep: Upkeep, kind: str, policies: dict[str, str], says: str | None
) -> None:
    client.commit(set_properties(**policies))
    expected = "" if says is None else f"no table asks for {kind}: {says}\n"
    for place in ((), ("ns",), ("ns.t",)):
        ended = upkeep("run", *place, "--only", kind)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "nothing to do\n", expected)
    if says is not None:
        answer = json.loads(upkeep("run", "--only", kind, "--only", "flush", "--json").stdout)
        assert (answer["tasks"], [says in note for note in answer["notes"]][:1]) == ([], [True])


def test_run_says_of_a_kind_that_no_table_asks_for_it_beside_others_that_are_done(upkeep: Upkeep) -> None:
    for options in ((), ("--json",)):
        ended = upkeep("run", "--only", "sort", "--only", "compact", "--no-wait", *options)
        assert ended.stderr == f"no table asks for sort: {NO_ORDER}\n"
    assert [note.split(":")[0] for note in json.loads(ended.stdout)["notes"]] == ["no table asks for sort"]


def test_run_says_nothing_of_a_kind_that_another_table_asks_for(client: Client, upkeep: Upkeep) -> None:
    client.create("u", properties={"maintenance.sort.order": "id"})
    ended = upkeep("run", "--only", "sort")
    assert (ended.stdout, ended.stderr) == ("nothing to do\n", "")


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
