"""Servers that are killed at every step of a refresh that leaves something behind."""

from contextlib import suppress
from pathlib import Path

import pytest

from duckicelake.catalog.gc import delete_orphans, find_orphans
from duckicelake.errors import NoSuchTableError
from tests.materialized_views.conftest import Views
from tests.support.killed_process import NEVER, Work, mortal
from tests.support.seams import fresh

MAX_STEPS = 60
FAR = 2**62
GROUPS = "SELECT k, count(*) AS n FROM {t} GROUP BY k"

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("change", ["INSERT INTO t SELECT i % 3 FROM range(30) r(i)", "DELETE FROM t WHERE k = 1"])
def test_view_whose_refresh_is_killed_has_its_contents_of_before_or_after(views: Views, change: str) -> None:
    views.lake.run("CREATE TABLE t (k INT)", "INSERT INTO t VALUES (1), (2), (2)")
    views.create("mv", GROUPS)
    seen = -1
    with mortal(views.services) as server:
        for step in range(MAX_STEPS):
            if seen < views.find("mv").refreshes:
                seen = views.find("mv").refreshes
                views.lake.run("INSERT INTO t VALUES (1), (5)", change)
            ending = server.serve(Work("refresh a view", step, "mv"))
            views.assert_exact("mv", GROUPS)
            if ending.answered:
                break
        assert ending.answered
        assert step > 5
    views.refresh("mv")
    views.assert_exact("mv", GROUPS)
    delete_orphans(views.services, find_orphans(fresh(views.services), FAR))
    views.assert_exact("mv", GROUPS)
    assert find_orphans(fresh(views.services), FAR) == []
    assert not [*Path(views.services.policy.warehouse).rglob(".tmp-*")]


def test_view_whose_creation_is_killed_is_there_or_not(views: Views) -> None:
    views.lake.run("CREATE TABLE t (k INT)", "INSERT INTO t VALUES (1), (2), (2)")
    with mortal(views.services) as server:
        for step in range(MAX_STEPS):
            name = f"mv{step}"
            ending = server.serve(Work("create a view", step, name, {"query": GROUPS.format(t="t")}))
            with suppress(NoSuchTableError):
                views.find(name)
                views.assert_exact(name, GROUPS)
            if ending.answered:
                break
        assert ending.answered
        views.assert_exact(name, GROUPS)
        assert server.serve(Work("refresh a view", NEVER, name)).answered
