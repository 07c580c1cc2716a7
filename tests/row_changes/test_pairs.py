"""Pairs of random sides beside a pairing in Python: rows with the same values, keys that occur twice, keys of null."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import duckdb
import pytest

from duckicelake.row_changes.pairs import PairedColumns, Pairing

Row = tuple[int, int, int | None, str | None]
"""Side, row id, and two columns."""
Paired = tuple[str, int, int]
"""Type, place and row id."""


def _split(rows: Sequence[Row], by: Callable[[Row], Any]) -> tuple[list[tuple[Row, Row]], list[Row]]:
    """Pair rows of both sides that have the same, the lowest row ids first; return pairs, and rows that are left."""
    groups: dict[Any, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for row in sorted(rows, key=lambda row: row[1]):
        groups[by(row)][row[0]].append(row)
    pairs, left = [], []
    for before, after in groups.values():
        count = min(len(before), len(after))
        pairs += list(zip(before[:count], after[:count], strict=True))
        left += before[count:] + after[count:]
    return pairs, left


def _expect(rows: Sequence[Row], pairing: Pairing) -> Counter[Paired]:
    _, changed = _split(rows, lambda row: row[1:] if pairing == "row-id" else row[2:])
    pairs, alone = _split(changed, lambda row: row[2] if pairing == "key" else row[1])
    found = Counter((("DELETE", "INSERT")[side], id_ * 4 + 2 + side, id_) for side, id_, *_ in alone)
    for pair in pairs:
        place = pair[0][1] * 4
        found.update((("UPDATE_BEFORE", "UPDATE_AFTER")[side], place, id_) for side, id_, *_ in pair)
    return found


def _choose(chance: random.Random, pairing: Pairing) -> list[Row]:
    rows: list[Row] = []
    for side in (0, 1):
        ids = chance.choices(range(12), k=12) if pairing == "row-id" else chance.sample(range(20), 12)
        rows += [(side, id_, chance.choice([None, 0, 1, 2, 3, 4]), chance.choice([None, "a", "b"])) for id_ in ids]
    return rows


def _check_neighbours(found: Sequence[Any]) -> None:
    after = [following for row, following in pairwise(found) if row[0] == "UPDATE_BEFORE"]
    assert {row[0] for row in after} <= {"UPDATE_AFTER"}, "the rows of an update aren't neighbours"
    assert len(after) == sum(row[0] == "UPDATE_AFTER" for row in found)


@pytest.mark.parametrize("pairing", ["row-id", "values", "key"])
def test_the_order_of_rows_says_nothing_of_that_in_which_they_are_read(pairing: Pairing) -> None:
    """Also of rows with one row id, as a transaction of DuckDB leaves them that updates what it has inserted."""
    chance = random.Random(5)
    columns = PairedColumns(("c0", "c1"), ("c0", "c1"), pairing, ("c0",) if pairing == "key" else (), ("c0", "c1"))
    sql = columns.write(*(f"SELECT r, c0, c1 FROM rows WHERE side = {side}" for side in (0, 1)))
    with duckdb.connect() as duck:
        duck.execute("CREATE TABLE rows (side INTEGER, r BIGINT, c0 INTEGER, c1 VARCHAR)")
        for _ in range(40):
            rows = [(side, 10**18 + id_ % 3, *values) for side, id_, *values in _choose(chance, pairing)]
            answers = []
            for _ in range(3):
                chance.shuffle(rows)
                duck.execute("DELETE FROM rows")
                duck.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
                answers.append(duck.execute(f"SELECT t, r, c0, c1 FROM ({sql}) ORDER BY place, tie").fetchall())
            assert answers[0] == answers[1] == answers[2]
            _check_neighbours(answers[0])


@pytest.mark.parametrize("pairing", ["row-id", "values", "key"])
@pytest.mark.parametrize("is_weak", [False, True], ids=["DuckDB's hash", "a weak hash"])
def test_random_sides(pairing: Pairing, is_weak: bool) -> None:
    """Hashes of different rows may be the same."""
    chance = random.Random(3)
    columns = PairedColumns(("c0", "c1"), ("c0", "c1"), pairing, ("c0",) if pairing == "key" else (), ("c0", "c1"))
    sql = columns.write(*(f"SELECT r, c0, c1 FROM rows WHERE side = {side}" for side in (0, 1)))
    kinds: Counter[str] = Counter()
    with duckdb.connect() as duck:
        duck.execute("CREATE TABLE rows (side INTEGER, r BIGINT, c0 INTEGER, c1 VARCHAR)")
        if is_weak:
            duck.execute(
                "CREATE MACRO hash(a) AS coalesce(a, 3) % 3, (a, b) AS coalesce(a, 3) * 2 + len(coalesce(b, ''))"
            )
        for _ in range(60):
            rows = _choose(chance, pairing)
            duck.execute("DELETE FROM rows")
            duck.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", rows)
            found = duck.execute(f"SELECT t, place, r, c0, c1 FROM ({sql}) ORDER BY place, tie").fetchall()
            assert Counter(row[:3] for row in found) == _expect(rows, pairing), rows
            sides = {"DELETE": 0, "UPDATE_BEFORE": 0, "INSERT": 1, "UPDATE_AFTER": 1}
            assert {(sides[row[0]], *row[2:]) for row in found} <= {*rows}
            _check_neighbours(found)
            kinds.update(row[0] for row in found)
    assert min(kinds[kind] for kind in ("INSERT", "DELETE", "UPDATE_BEFORE", "UPDATE_AFTER")) > 20


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DOUBLE", ("'nan'", "0.0", "-0.0", "1")),
        (
            "STRUCT(a INTEGER, b VARCHAR[])",
            ("{'a': 1, 'b': ['x', NULL]}", "{'a': 1, 'b': []}", "{'a': NULL, 'b': NULL}"),
        ),
        ("MAP(VARCHAR, INTEGER)", ("MAP {'a': 1}", "MAP {'a': NULL}", "MAP {}")),
        ("BLOB", ("'a'::BLOB", "''::BLOB", "'b'::BLOB")),
    ],
)
@pytest.mark.parametrize("pairing", ["row-id", "values"])
def test_types(pairing: Pairing, kind: str, values: Sequence[str]) -> None:
    """Each row gets the next value, or null: that is an update, whether it leads to null, from it or neither."""
    columns = PairedColumns(("c0",), ("c0",), pairing, (), ("c0",))
    step = 10 if pairing == "values" else 0
    before, after = (
        " UNION ALL ".join(f"SELECT {step * side + at} AS r, {value}::{kind} AS c0" for at, value in enumerate(found))
        for side, found in enumerate([("NULL", *values), (*values, "NULL")])
    )
    with duckdb.connect() as duck:
        found = duck.execute(f"SELECT t FROM ({columns.write(before, after)})").fetchall()
    distinct = 1 if kind == "DOUBLE" else 0
    assert len(found) == (0 if pairing == "values" else 2 * (len(values) + 1 - distinct))
