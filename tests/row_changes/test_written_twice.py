"""Transactions of DuckDB that write rows several times: a reader gets the last state, the same in pages of any length.

DuckDB 1.5.5 keeps row ids of its own, from 10^18 on, of rows that a transaction inserts and then updates. So several
rows of a table may have the same one.
"""

import random
from typing import Any

import pytest

from tests.row_changes.conftest import Change, Changes
from tests.row_changes.test_changes import upgrade

_REWRITES = ("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")


def choose_write(chance: random.Random) -> str:
    few, other, number = chance.randrange(8), chance.randrange(8), chance.randrange(3)
    return chance.choice(
        [
            f"INSERT INTO t VALUES ({few}, 'v{number}')",
            f"INSERT INTO t SELECT i, 'v' || i % 3 FROM range({few}, {few + 12}) r(i)",
            f"DELETE FROM t WHERE id = {few}",
            f"DELETE FROM t WHERE id % 3 = {number}",
            f"UPDATE t SET name = 'v{number}' WHERE id = {few}",
            f"UPDATE t SET name = 'v{number}' WHERE id % 4 = {few % 4}",
            f"UPDATE t SET id = {other} WHERE id = {few}",
            "UPDATE t SET id = id + 1",
        ]
    )


def read_pages(changes: Changes, limit: int, **query: Any) -> list[Change]:
    """Read all changes in answers of so many rows."""
    rows: list[Change] = []
    found = {"_position": "0.0.0", "_is_complete": False}
    while not found["_is_complete"]:
        part, found = changes.read(since=found["_position"], limit=limit, **query)
        assert len(part) == limit or found["_is_complete"]
        rows += part
    return rows


@pytest.mark.parametrize(
    ("seed", "format_version", "query"),
    [
        (0, 2, {"key": "id"}),
        (1, 3, {}),
        (2, 3, {"key": "id"}),
        (3, 2, {}),
        (4, 3, {"where": "id < 6"}),
        (5, 2, {"where": "id < 6"}),
    ],
    ids=str,
)
def test_pages_of_any_length_have_the_same_changes(
    changes: Changes, seed: int, format_version: int, query: dict[str, str]
) -> None:
    chance = random.Random(seed)
    changes.duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    if format_version == 3:
        upgrade(changes)
    for _ in range(10):
        writes = [choose_write(chance) for _ in range(chance.randrange(1, 7))]
        statements = [chance.choice(_REWRITES)] if chance.random() < 0.2 else ["BEGIN", *writes, "COMMIT"]
        for statement in statements:
            changes.duck.execute(statement).fetchall()
        changes.note_state()
    if "where" in query:
        whole, _ = changes.read(**query)
    else:
        whole = changes.check_replay(**query)
    assert {row["_change_type"] for row in whole} >= {"INSERT", "DELETE"}
    for limit in (1, 2, 3):
        assert read_pages(changes, limit, **query) == whole, limit


@pytest.mark.parametrize(
    "writes",
    [
        ["CREATE TABLE t AS SELECT i AS id, 'a' AS name FROM range(30) r(i)"],
        ["CREATE TABLE t (id BIGINT, name VARCHAR)", "INSERT INTO t SELECT i, 'a' FROM range(30) r(i)"],
    ],
    ids=["filled", "empty"],
)
@pytest.mark.parametrize("removal", ["DELETE FROM t WHERE id < 4", "UPDATE t SET name = 'b' WHERE id < 4"])
def test_table_has_no_rows_that_the_transaction_which_created_it_removed(
    changes: Changes, writes: list[str], removal: str
) -> None:
    for statement in ("BEGIN", *writes, removal, "COMMIT"):
        changes.duck.execute(statement)
    changes.check_replay()
