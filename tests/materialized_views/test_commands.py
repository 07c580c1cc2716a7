"""The commands of materialized views, from the first to the last."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.server.app import create_app
from tests.materialized_views.conftest import Views
from tests.support.commands import run_here

pytestmark = pytest.mark.commands
COMMAND = Callable[..., CompletedProcess[str]]
QUERY = "SELECT k, count(*) AS n FROM t GROUP BY k"


@pytest.fixture
def command(views: Views, serve: Callable[[FastAPI], httpx.Client]) -> COMMAND:
    """Runs commands on a lake with a table."""
    views.lake.run("CREATE TABLE t (k BIGINT, v BIGINT, s VARCHAR)", "INSERT INTO t VALUES (1, 1, 'x'), (2, 1, 'y')")
    uri = str(serve(create_app(views.services)).base_url)
    return lambda *arguments: run_here("materialized-view", *arguments, "--uri", uri)


def test_view_is_made_shown_scheduled_refreshed_and_dropped(views: Views, command: COMMAND) -> None:
    def call(*arguments: str, code: int = 0) -> str:
        ended = command(*arguments)
        assert ended.returncode == code, ended
        return ended.stderr if code else ended.stdout

    assert "whole, created; 2 rows in " in call("create", "main.by_k", QUERY, "--every", "1h")
    assert json.loads(call("list", "--json"))["name"] == "by_k"
    assert "by_k" in call("list", "main")
    shown = call("show", "main.by_k")
    assert f"query: {QUERY}" in shown
    assert "refreshed: every 3600 s\n" in shown
    assert "sources: main.t at snapshot " in shown
    assert call("schedule", "main.by_k", "--on-change") == "main.by_k is refreshed on change\n"
    view = json.loads(call("schedule", "main.by_k", "--every", "2h", "--on-change", "--json"))
    assert (view["refresh-every"], view["refresh-on-change"]) == (7200, True)
    assert call("schedule", "main.by_k") == "main.by_k is refreshed on request\n"
    views.lake.run("INSERT INTO t VALUES (77, 1, 'new')")
    assert "refreshed main.by_k: incremental, only rows were appended" in call("refresh", "main.by_k")
    assert json.loads(call("refresh", "main.by_k", "--whole", "--json"))["mode"] == "whole"
    assert views.rows("SELECT n FROM by_k WHERE k = 77") == [(1,)]
    assert "already exists" in call("create", "main.by_k", QUERY, code=6)
    assert call("drop", "main.by_k") == "dropped main.by_k\n"
    assert "by_k" not in call("list")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "main.mv", "SELECT now() AS t FROM t"), "now"),
        (("create", "main.mv", "DELETE FROM t"), "SELECT"),
        (("create", "main.mv", "SELECT nope FROM t"), "nope"),
        (("create", "main.mv", QUERY, "--every", "often"), "often"),
        (("create", "nope.mv", QUERY), "nope"),
        (("refresh", "main.t"), "main.t"),
        (("show", "main.nope"), "main.nope"),
        (("drop", "main.t"), "main.t"),
    ],
)
def test_what_cannot_be_is_named_in_one_line(
    views: Views, command: COMMAND, arguments: tuple[str, ...], says: str
) -> None:
    ended = command(*arguments)
    assert ended.returncode in {1, 2, 3}, ended
    assert (says in ended.stderr, ended.stdout, len(ended.stderr.splitlines())) == (True, "", 1), ended.stderr
    assert views.rows("SELECT table_name FROM duckdb_tables() WHERE table_name IN ('mv')") == []
