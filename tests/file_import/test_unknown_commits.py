"""A load whose commit may have been made: its files stay, and the same run is not made twice."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.file_import.conftest import Loads
from tests.storage.s3_proxy import BREAK_OFF, Proxy, Request, proxy_of

ROWS = [(1, "a"), (2, "b")]


@pytest.fixture
def proxy(loads: Loads) -> Iterator[Proxy]:
    """A proxy before the catalog."""
    with proxy_of(loads.lake.uri) as opened:
        yield opened


def is_commit(request: Request) -> bool:
    return request.method == "POST" and request.path.startswith("/v1/") and "/tables/" in request.path


def lose(status: int) -> Callable[[Request], int | None]:
    """Answer the first commit so, and nothing after it: -1 breaks off once the catalog has made it."""
    lost: list[Request] = []

    def spoil(request: Request) -> int | None:
        if not lost and is_commit(request):
            lost.append(request)
            return status
        return 503 if lost else None

    return spoil


@pytest.mark.parametrize(("status", "exists"), [(BREAK_OFF, True), (BREAK_OFF, False), (503, True)])
def test_files_of_a_commit_without_an_answer_stay(
    loads: Loads, proxy: Proxy, table: str, status: int, exists: bool
) -> None:
    file, name = loads.file("a.csv", "id,x\n1,a\n2,b\n"), table.partition(".")[2]
    before = []
    if exists:
        loads.run(loads.file("first.csv", "id,x\n0,z\n"), "--table", table, "--yes")
        before = [(0, "z")]
    load = (file, "--table", table, "--yes", "--run-id", name)
    proxy.spoil = lose(status)
    error = loads.run(*load, "--uri", proxy.endpoint, code=4)
    assert error["message"].endswith(f"run id {name}"), error
    if status == BREAK_OFF:
        assert loads.rows(f"SELECT * FROM lake.{table} ORDER BY 1") == before + ROWS
    assert loads.run(*load)["rows"] == 2
    assert loads.rows(f"SELECT * FROM lake.{table} ORDER BY 1") == before + ROWS


def test_files_of_a_refused_commit_are_removed(loads: Loads, proxy: Proxy, table: str) -> None:
    loads.run(loads.file("first.csv", "id,x\n0,z\n"), "--table", table, "--yes")
    (kept,) = loads.list_files(table)
    proxy.spoil = lambda request: 409 if is_commit(request) else None
    load = (loads.file("a.csv", "id,x\n1,a\n2,b\n"), "--table", table, "--run-id", "refused")
    loads.run(*load, "--uri", proxy.endpoint, code=6)
    folder = Path(kept.removeprefix("file:")).parents[1]
    assert [path.name for path in folder.rglob("*.parquet")] == [Path(kept).name]
    assert loads.run(*load)["rows"] == 2
