"""A snapshot of more changes than an answer may have: how often its rows are computed, and who has the rest."""

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckicelake.query.processes import QueryProcess
from duckicelake.query.protocol import Answers, Commands
from duckicelake.row_changes.worker import ChangeReader
from tests.row_changes.conftest import Change, Changes

_ROWS = 1_000


class CountedChanges:
    """Answers changes of one step in this process; each row of it that DuckDB computes is counted."""

    def __init__(self) -> None:
        self.duck = duckdb.connect()
        self.duck.execute("CREATE SEQUENCE computed")
        self._reader = ChangeReader()
        self.rest: str | None = None
        """What the last answer has left."""
        self._memory = os.memfd_create("pieces")
        os.ftruncate(self._memory, 4096)

    def close(self) -> None:
        self.duck.close()
        os.close(self._memory)

    @property
    def computed(self) -> int:
        ((value,),) = self.duck.execute("SELECT nextval('computed') - 1").fetchall()
        return int(value)

    def ask(self, position: Sequence[int], snapshots: Sequence[int], **order: Any) -> tuple[list[Change], str]:
        """Return the rows of an answer, and the position at its end. snapshots: of the step, all after the position."""
        last = snapshots[-1]
        count = _ROWS * len(snapshots)
        sql = (
            f"SELECT 'INSERT' AS t, {snapshots[0]} + n // {_ROWS} AS s, n AS r, id AS c0, 'x' AS c1 "
            f"FROM (SELECT range AS n, nextval('computed') + range AS id FROM range({count}))"
        )
        step = {
            "sql": sql,
            "snapshots": snapshots,
            "shape": "a",
            "order": "q.s, q.r",
            "ordinal": position[2],
            "skip": position[1],
        }
        asked = {
            "target": "SELECT 0::BIGINT AS id, '' AS g",
            "shown": [0, 1],
            "hashed": {},
            "steps": [step],
            "position": position,
            "seen": last,
            "has_row_ids": True,
            "has_rest": True,
            "rows": 100,
            "format": "json",
            "upto": last,
            "is_last": True,
            "seconds": 60,
            "grace_seconds": 2,
            "secrets": {},
            **order,
        }
        with Path(os.devnull).open("wb") as sent:
            answers, commands = Answers(sent, self._memory), Commands(io.BytesIO(), self.duck.interrupt)
            found = [*self._reader.answer(self.duck, (b"H", json.dumps(asked).encode()), answers, commands)]
        self.rest = json.loads(found[-1][1])["rest"]
        *rows, end = [json.loads(line) for kind, body in found if kind == b"D" for line in body.splitlines()]
        return rows, end["_position"]


@pytest.fixture
def counted() -> Iterator[CountedChanges]:
    with closing(CountedChanges()) as changes:
        yield changes


def parse(position: str) -> list[int]:
    return [int(part) for part in position.split(".")][:3]


def read_all(counted: CountedChanges, last: int, limit: int = 100) -> list[Change]:
    """Read the changes of the snapshots from 5 on, each answer's step from where the one before ended."""
    rows: list[Change] = []
    position = "4.0.0"
    while position != f"{last}.0.{last - 4}":
        snapshot_id, read, _ = at = parse(position)
        begins = snapshot_id if read else snapshot_id + 1
        found, position = counted.ask(at, [*range(begins, last + 1)], rows=limit)
        rows += found
    return rows


@pytest.mark.parametrize("limit", [100, 300])
def test_a_snapshot_of_many_answers_is_computed_twice(counted: CountedChanges, limit: int) -> None:
    rows = read_all(counted, 5, limit)
    assert [row["_changed_row_id"] for row in rows] == [*range(_ROWS)]
    assert {row["_change_ordinal"] for row in rows} == {0}
    assert counted.computed == 2 * _ROWS


def test_a_run_of_snapshots_is_computed_twice(counted: CountedChanges) -> None:
    """A step of the next answer begins with the snapshot in which the one before ended."""
    rows = read_all(counted, 7, 150)
    assert [row["_commit_snapshot_id"] for row in rows] == [5] * _ROWS + [6] * _ROWS + [7] * _ROWS
    assert [row["_change_ordinal"] for row in rows] == [0] * _ROWS + [1] * _ROWS + [2] * _ROWS
    assert counted.computed == 6 * _ROWS


@pytest.mark.parametrize("position", [[5, 100, 0], [5, 300, 0], [5, 199, 0]], ids=["before", "behind", "within"])
def test_another_position_is_computed(counted: CountedChanges, position: list[int]) -> None:
    counted.ask([5, 100, 0], [5])
    rows, _ = counted.ask(position, [5])
    assert [row["_changed_row_id"] for row in rows] == [*range(position[1], position[1] + 100)]
    assert counted.computed == 2 * _ROWS


def test_what_another_reader_left_is_computed(counted: CountedChanges) -> None:
    """It may have another order, if a merge came before this reader began."""
    counted.ask([5, 100, 0], [5])
    rows, _ = counted.ask([5, 200, 0], [5], has_rest=False)
    assert [row["_changed_row_id"] for row in rows] == [*range(200, 300)]
    assert counted.computed == 2 * _ROWS


@pytest.mark.parametrize("has_rest", [False, True])
def test_what_another_reader_left_is_not_that_of_an_answer_without_steps(
    counted: CountedChanges, has_rest: bool
) -> None:
    """A follower's usual answer: its end would say that the rest is as new as it, also if a merge came between."""
    counted.ask([5, 100, 0], [5])
    assert counted.rest == "5.200.0"
    counted.ask([6, 0, 1], [6], steps=[], has_rest=has_rest)
    assert counted.rest is None
    counted.ask([5, 200, 0], [5])
    assert counted.computed == 2 * _ROWS


def test_other_columns_are_computed(counted: CountedChanges) -> None:
    counted.ask([5, 100, 0], [5], shown=[0])
    rows, _ = counted.ask([5, 200, 0], [5])
    assert {(row["g"], row["_change_type"]) for row in rows} == {("x", "INSERT")}
    assert counted.computed == 2 * _ROWS


def test_an_earlier_end_is_computed(counted: CountedChanges) -> None:
    """What is left goes further than the answer may."""
    counted.ask([5, 100, 0], [5, 6])
    rows, position = counted.ask([5, 200, 0], [5], rows=_ROWS)
    assert ({row["_commit_snapshot_id"] for row in rows}, len(rows), position) == ({5}, _ROWS - 200, "5.0.1")


def test_a_later_end_is_another_answer(counted: CountedChanges) -> None:
    counted.ask([5, 100, 0], [5])
    rows, position = counted.ask([5, 200, 0], [5, 6], rows=2 * _ROWS)
    assert ([row["_changed_row_id"] for row in rows], position) == ([*range(200, _ROWS)], "5.0.1")
    assert len(counted.ask([5, 0, 1], [6], rows=_ROWS)[0]) == _ROWS


def test_what_has_no_room_is_computed_for_each_answer(counted: CountedChanges) -> None:
    """DuckDB 1.5.5 sorts the rows in 56 MB, and needs 88 MB to put them into a table besides."""
    counted.duck.execute("SET memory_limit = '72MB'; SET max_temp_directory_size = '0B'; SET threads = 1")
    sql = "SELECT 'INSERT' AS t, 5 AS s, n AS r, n AS c0 FROM range(1000000) q(n)"
    step = {"sql": sql, "snapshots": [5], "shape": "a", "order": "q.s, q.r", "ordinal": 0, "skip": 100}
    asked = {"target": "SELECT 0::BIGINT AS id", "shown": [0], "steps": [step]}
    with pytest.raises(duckdb.OutOfMemoryException):
        counted.duck.execute(f"CREATE TEMP TABLE kept AS FROM ({sql}) ORDER BY r")
    rows, position = counted.ask([5, 100, 0], [5], **asked)
    assert ([row["id"] for row in rows], position) == ([*range(100, 200)], "5.200.0.5")


def test_an_error_in_a_later_step_ends_the_answer_before_it(counted: CountedChanges) -> None:
    """A reader goes on there, in a process that doesn't know of what is gone."""
    good = {"sql": "SELECT 'INSERT' AS t, 5 AS s, n AS r, n AS c0, '' AS c1 FROM range(3) q(n)"}
    bad = {"sql": "FROM gone"}
    steps = [
        {**sql, "snapshots": [number], "shape": "a", "order": "q.s, q.r", "ordinal": number - 5, "skip": 0}
        for number, sql in ((5, good), (6, bad))
    ]
    rows, position = counted.ask([4, 0, 0], [5, 6], steps=steps)
    assert (len(rows), position) == (3, "5.0.1")
    with pytest.raises(duckdb.Error, match="gone"):
        counted.ask([5, 0, 1], [6], steps=steps[1:])


def test_answers_of_a_snapshot_have_one_process(changes: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another reader of the table comes between them, and gets a process of its own."""
    for statement in ("CREATE TABLE t (id BIGINT)", "INSERT INTO t SELECT range FROM range(900)"):
        changes.duck.execute(statement)
    used: list[QueryProcess] = []
    send = QueryProcess.send

    def note(self: QueryProcess, kind: bytes, body: bytes) -> None:
        if kind == b"H":
            used.append(self)
        send(self, kind, body)

    whole, _ = changes.read()
    monkeypatch.setattr(QueryProcess, "send", note)
    end = changes.read(limit=100)[1]
    end = changes.read(since=end["_position"], limit=100)[1]
    changes.read(limit=1)
    rows, end = changes.read(since=end["_position"], limit=100)
    assert rows == whole[200:300]
    first, _, other, last = used
    assert first is last
    assert other is not first
