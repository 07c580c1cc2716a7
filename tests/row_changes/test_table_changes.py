"""Changes of rows beside DuckLake's own `table_changes`, snapshot by snapshot, in random histories of DuckDB."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.row_changes.conftest import Change, Changes
from tests.row_changes.test_changes import upgrade

_NAMES: Final = ("id", "name", "amount")
_REWRITES: Final = (
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
    "CALL ducklake_merge_adjacent_files('lake')",
)
Rows = Counter[tuple[str, int, str]]
"""Type, row id and values of changed rows."""


@pytest.mark.parametrize(("seed", "has_merges"), [(1, False), (5, False), (6, True)])
def test_random_history_is_what_table_changes_lists(changes: Changes, seed: int, has_merges: bool) -> None:
    """Each snapshot's changes are those that DuckDB lists right after it, now and behind later rewrites.

    A merge of files gives new row ids to rows that updates wrote (DuckDB 1.5.5), so histories with merges are compared
    by values.
    """
    chance, duck = random.Random(seed), changes.duck
    duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR, amount DECIMAL(9, 2))")
    upgrade(changes)
    ours: dict[int, Rows] = {}
    expected: dict[int, Rows] = {}
    position, rewrites = "0.0.0", 0
    for _ in range(30):
        newest = _read_newest(changes)
        is_rewrite = chance.random() < 0.3
        for statement in [chance.choice(_REWRITES[: 2 + has_merges])] if is_rewrite else _choose_write(chance):
            duck.execute(statement).fetchall()
        added = range(newest + 1, _read_newest(changes) + 1)
        rewrites += len(added) if is_rewrite else 0
        expected |= {} if is_rewrite else {number: _list_changes(changes, number) for number in added}
        if chance.random() < 0.2:
            rows, end = changes.read(since=position)
            position = end["_position"]
            ours |= _group(rows)
    ours |= _group(changes.read(since=position)[0])
    whole = _group(changes.read()[0])
    for found in (ours, whole):
        for number in {*found, *expected}:
            said, listed = (rows.get(number, Counter()) for rows in (found, expected))
            assert _cancel(said) == _cancel(listed) if has_merges else said == listed, number
    assert rewrites > 2


def _choose_write(chance: random.Random) -> Sequence[str]:
    """Choose a statement that changes rows, or a transaction of several."""
    few, many, share, other = (chance.randrange(*ends) for ends in ((1, 9), (20, 60), (3, 9), (3, 9)))
    insert = "INSERT INTO t SELECT i, 'n' || (i % 4), i / 4 FROM range"
    return chance.choice(
        [
            [f"{insert}({few}) r(i)"],
            [f"{insert}({many}, {many + 30}) r(i)"],
            [f"DELETE FROM t WHERE id % {share} = {other % share}"],
            [f"UPDATE t SET name = 'u{other}' WHERE id % {share} = 0"],
            [f"UPDATE t SET name = name WHERE id % {share} = 1"],
            ["DELETE FROM t WHERE id < 0"],
            ["DELETE FROM t"] if chance.random() < 0.2 else [f"{insert}(3) r(i)"],
            ["BEGIN", f"DELETE FROM t WHERE id < {few}", f"{insert}({few}) r(i)", "COMMIT"],
            [
                "BEGIN",
                f"UPDATE t SET amount = amount + 1 WHERE id % {share} = 0",
                f"{insert}({few}) r(i)",
                f"DELETE FROM t WHERE id % {other} = 2",
                "COMMIT",
            ],
        ]
    )


def _read_newest(changes: Changes) -> int:
    ((newest,),) = changes.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    return int(newest)


def _list_changes(changes: Changes, snapshot_id: int) -> Rows:
    """List a snapshot's changes by DuckDB: what both sides have left out, and the rest paired by row id.

    DuckDB lists updates that change no value, and rows that a transaction wrote and deleted. It pairs not all updates.
    """
    listed = changes.duck.execute(
        f"SELECT rowid, change_type, {', '.join(_NAMES)} FROM ducklake_table_changes('lake', 'main', 't', ?, ?)",
        [snapshot_id, snapshot_id],
    ).fetchall()
    sides = {True: Counter[tuple[int, str]](), False: Counter[tuple[int, str]]()}
    for row_id, kind, *values in listed:
        sides[kind in {"delete", "update_preimage"}][row_id, _write(dict(zip(_NAMES, values, strict=True)))] += 1
    gone, come = sides[True] - sides[False], sides[False] - sides[True]
    paired = {row_id for row_id, _ in gone} & {row_id for row_id, _ in come}
    found: Rows = Counter()
    for side, alone, half in ((gone, "DELETE", "UPDATE_BEFORE"), (come, "INSERT", "UPDATE_AFTER")):
        for (row_id, text), count in side.items():
            found[half if row_id in paired else alone, row_id, text] += count
    return found


def _cancel(rows: Rows) -> tuple[Counter[str], Counter[str]]:
    """Return the values that are gone and those that came, without those on both sides."""
    gone, come = Counter[str](), Counter[str]()
    for (kind, _, values), count in rows.items():
        (gone if kind in {"DELETE", "UPDATE_BEFORE"} else come)[values] += count
    return gone - come, come - gone


def _group(rows: Sequence[Change]) -> dict[int, Rows]:
    """Group an answer's rows by snapshot."""
    grouped: dict[int, Rows] = {}
    for row in rows:
        own = row["_change_type"], row["_changed_row_id"], _write({name: row[name] for name in _NAMES})
        grouped.setdefault(row["_commit_snapshot_id"], Counter())[own] += 1
    return grouped


def _write(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=str)
