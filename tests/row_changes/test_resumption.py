"""Readers of changes go on where they stopped: behind a killed server, on another one, in a table that has changed."""

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest

from duckicelake.client.lake import Lake
from duckicelake.rest.connection import Connection
from duckicelake.row_changes.client import ChangesReader
from duckicelake.row_changes.sinks import FollowedTable
from scripts.backends_job.processes import free_port
from tests.cli.test_commands import Served, serving
from tests.row_changes.conftest import Change, Changes
from tests.row_changes.test_changes import upgrade

_ROWS = 40_000
_PATH = "/v1/namespaces/main/tables/t/changes"


@contextmanager
def serve_at(folder: Path, database_url: str, warehouse: Path, port: int) -> Iterator[Served]:
    """Serve the lake of the database at a port."""
    folder.mkdir(parents=True)
    settings = {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}
    with serving(folder / "lake", "--port", str(port), **settings) as served:
        yield served


@pytest.fixture
def history(ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Make snapshots so large that a socket doesn't hold them: two of insertions, an update, a deletion."""
    for statement in (
        "USE lake.main",
        "CREATE TABLE t (id BIGINT, name VARCHAR)",
        f"INSERT INTO t SELECT i, 'n' || i FROM range({_ROWS}) r(i)",
        f"INSERT INTO t SELECT i, 'm' || i FROM range({_ROWS}, {_ROWS + 5}) r(i)",
        "UPDATE t SET name = 'x' || id WHERE id % 3 = 0",
        "DELETE FROM t WHERE id % 5 = 0",
    ):
        ducklake.execute(statement)
    return ducklake


@dataclass
class KillingSink:
    """Keeps the rows that it takes, and does something once it has so many."""

    acts: dict[int, Any]
    lines: list[bytes] = field(default_factory=list)

    def find_place(self) -> FollowedTable:
        return FollowedTable()

    def take(self, line: bytes, row: Mapping[str, Any], place: FollowedTable) -> None:
        assert place.change is not None
        assert place.change.snapshot_id == row["_commit_snapshot_id"]
        self.lines.append(line)
        if act := self.acts.pop(len(self.lines), None):
            act()

    def keep(self, place: FollowedTable) -> None:
        """Keep nothing."""


@pytest.mark.crash
@pytest.mark.usefixtures("history")
def test_a_server_that_is_killed_in_an_answer_loses_and_doubles_no_row(
    database_url: str, warehouse: Path, tmp_path: Path
) -> None:
    """Killed in insertions, in an update and in a deletion, it starts again; the reader asks behind the last row."""
    port = free_port()
    with ExitStack() as servers:
        running: list[Served] = []

        def start() -> None:
            folder = tmp_path / f"server{len(running)}"
            running.append(servers.enter_context(serve_at(folder, database_url, warehouse, port)))

        def kill() -> None:
            running[-1].end(signal.SIGKILL)
            start()

        start()
        lake = Lake(Connection(f"http://127.0.0.1:{port}"))
        sink = KillingSink(dict.fromkeys((100, _ROWS + 2_000, _ROWS * 5 // 3 + 1_000), kill))
        reader = ChangesReader(lake, "main.t", {}, sink)
        reader.read(is_following=False)
        whole = httpx.get(f"{running[-1].uri}{_PATH}", timeout=120).content.splitlines(keepends=True)
        assert len(running) == 4
    assert len(whole) > _ROWS * 5 // 3 + 8_000
    assert sink.lines == whole[:-1]
    assert reader.place.position == json.loads(whole[-1])["_position"]


@pytest.mark.crash
def test_two_servers_of_a_lake_answer_the_same_changes(
    history: duckdb.DuckDBPyConnection, database_url: str, warehouse: Path, tmp_path: Path
) -> None:
    """A reader asks both in turn, one snapshot is read by several answers, and DuckDB writes between."""
    with (
        serve_at(tmp_path / "a", database_url, warehouse, free_port()) as one,
        serve_at(tmp_path / "b", database_url, warehouse, free_port()) as other,
    ):
        rows: list[bytes] = []
        end = {"_position": "0.0.0", "_is_complete": False}
        number = 0
        while number < 8 or not end["_is_complete"]:
            served = (one, other)[number % 2]
            if number < 8:
                history.execute(f"UPDATE t SET name = 'w{number}' WHERE id % 7 = {number % 7} AND id < 9000")
            query: dict[str, Any] = {"from": end["_position"], "limit": 15_000}
            *found, last = httpx.get(f"{served.uri}{_PATH}", params=query, timeout=120).content.splitlines()
            rows += found
            end = json.loads(last)
            number += 1
        for served in (one, other):
            *whole, _ = httpx.get(f"{served.uri}{_PATH}", timeout=120).content.splitlines()
            assert rows == whole


def read_in_parts(changes: Changes, acts: list[str], limit: int = 7) -> tuple[list[Change], list[Change]]:
    """Read all changes, with a statement before each answer; return them, and those of one answer at the end."""
    name, found, rows = "t", {"_position": "0.0.0", "_is_complete": False}, []
    while not found["_is_complete"]:
        if acts:
            statement = acts.pop(0)
            changes.duck.execute(statement).fetchall()
            name = statement.rpartition(" TO ")[2] if "RENAME TO" in statement else name
        part, found = changes.read(name, since=found["_position"], limit=limit)
        rows += part
    assert acts == []
    return rows, changes.read(name)[0]


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_table_that_is_renamed_and_altered_between_answers_loses_and_doubles_no_row(
    changes: Changes, format_version: int
) -> None:
    for statement in (
        "CREATE TABLE t (id BIGINT, gone INT, name VARCHAR)",
        "INSERT INTO t SELECT i, i, 'n' FROM range(6) r(i)",
    ):
        changes.duck.execute(statement)
    if format_version == 3:
        changes.http.post(
            "/v1/namespaces/main/tables/t",
            json={"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]},
        ).raise_for_status()
    for statement in (
        "INSERT INTO t SELECT i, i, 'f' FROM range(100, 130) r(i)",
        "UPDATE t SET gone = gone + 1 WHERE id % 2 = 0",
        "UPDATE t SET gone = 0, name = 'x' WHERE id > 110",
        "DELETE FROM t WHERE id < 3",
    ):
        changes.duck.execute(statement)
    rows, whole = read_in_parts(
        changes,
        [
            "SELECT 1",
            "ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 4",
            "ALTER TABLE t RENAME TO other",
            "SELECT 1",
            "SELECT 1",
            "ALTER TABLE other RENAME COLUMN name TO called",
            "SELECT 1",
            "ALTER TABLE other DROP COLUMN gone",
            "ALTER TABLE other RENAME TO t",
            "CALL ducklake_flush_inlined_data('lake')",
        ],
    )
    own = ("_change_type", "_commit_snapshot_id", "_changed_row_id", "id")
    assert [[row[name] for name in own] for row in rows] == [[row[name] for name in own] for row in whole]
    kinds = [row["_change_type"] for row in whole]
    assert len(kinds) == 6 + 30 + 2 * 18 + 2 * 19 + 3
    assert "more" in rows[-1]
    assert "called" in rows[-1]


def test_a_reader_in_a_snapshot_whose_beginning_has_expired_is_refused(changes: Changes) -> None:
    """What is left of the snapshot can't be known any more: the answer names the oldest position."""
    changes.duck.execute("CREATE TABLE t (id BIGINT)")
    for number in range(3):
        changes.duck.execute(f"INSERT INTO t SELECT i FROM range({number}, 20) r(i)")
    _, end = changes.read(limit=5)
    newest = changes.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()[0][0]
    changes.duck.execute(f"CALL ducklake_expire_snapshots('lake', versions => {[*range(newest)]})").fetchall()
    answer = changes.ask(since=end["_position"])
    assert answer.status_code == 410
    assert f"the oldest from that is known is {newest}" in answer.json()["error"]["message"]
    assert changes.read(since=newest)[0] == []


@pytest.mark.parametrize("format_version", [2, 3])
def test_a_reader_in_a_snapshot_whose_files_duckdb_merges_is_refused(changes: Changes, format_version: int) -> None:
    """The merge gives other row ids to updated rows, and so another order to the changes: rows were lost."""
    for statement in (
        "CREATE TABLE t (id BIGINT, name VARCHAR)",
        "INSERT INTO t SELECT i, 'n' FROM range(60) r(i)",
        "INSERT INTO t SELECT i, 'n' FROM range(60, 120) r(i)",
    ):
        changes.duck.execute(statement)
    if format_version == 3:
        upgrade(changes)
    changes.duck.execute("UPDATE t SET name = 'x' WHERE id % 2 = 0")
    ((updated_at,),) = changes.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    changes.duck.execute("INSERT INTO t SELECT i, 'n' FROM range(200, 240) r(i)")
    rows, end = changes.read(limit=150)
    whole = changes.read()[0]
    assert changes.read(since=end["_position"])[0] == whole[150:]
    changes.duck.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall()
    for position in (end["_position"], end["_position"].rpartition(".")[0]):
        answer = changes.ask(since=position)
        assert answer.status_code == 409
        assert f"read them from their beginning, from={updated_at - 1}" in answer.json()["error"]["message"]
    later, end = changes.read(since=updated_at - 1, limit=70)
    later += changes.read(since=end["_position"])[0]
    own = ("_change_type", "_commit_snapshot_id", "_changed_row_id", "id", "name")
    found = [row for row in rows if row["_commit_snapshot_id"] < updated_at] + later
    assert [[row[name] for name in own] for row in found] == [[row[name] for name in own] for row in changes.read()[0]]
